"""Exported programs as linalg on tensors, by way of torch-mlir."""

# torch_mlir.ir re-exports a C++ module that has no stubs.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch_mlir import ir
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_importer import FxImporter

from felix_mlir.atomic import replacing
from felix_mlir.compiler.process import run_compiler, tool_path
from felix_mlir.errors import RequestError
from felix_mlir.importers.messages import blaming
from felix_mlir.importers.model import EMBED_LIMIT_BYTES, Model
from felix_mlir.importers.torch_export import TorchProgram
from felix_mlir.importers.weights import WeightHooks, write_archive

LOWERING_LIMIT_S = 120.0
"""Time torch-mlir gets to lower a program. Networks take seconds; some programs (`x[x > 0]`) never end."""

# What torch_mlir.fx.export_and_import runs for its output type linalg-on-tensors.
PIPELINE = (
    "builtin.module(func.func(torch-match-quantized-custom-ops),"
    "torchdynamo-export-to-torch-backend-pipeline,"
    "torch-backend-to-linalg-on-tensors-backend-pipeline)"
)


def write_program(name: str, program: TorchProgram, directory: Path) -> Model:
    """Write `program` to `directory` as `<name>.mlir` and, when it has weights, `<name>.irpa`.

    Raises RequestError when torch-mlir cannot import or lower it, or `directory` cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the directory '{directory}': {error.strerror}") from error
    hooks = WeightHooks()
    text = _import(program, hooks)
    mlir = directory / f"{name}.mlir"
    parameters = directory / f"{name}.irpa" if hooks.weights else None
    with replacing(mlir) as partial_mlir:
        _lower(program.origin, text, partial_mlir)
        if parameters is not None:  # Before `mlir`, which names what is in it, appears.
            with replacing(parameters) as partial_parameters:
                write_archive(hooks.weights, partial_parameters)
    weights = list(hooks.weights.values())
    return Model(
        name=name,
        mlir=mlir,
        parameters=parameters,
        embed_parameters=_can_embed(weights),
        inputs=program.inputs,
        reference=program.reference,
        keep_f64=any(weight.dtype == torch.float64 for weight in weights)
        or any(array.dtype == np.float64 for array in (*program.inputs, *program.reference)),
    )


def _can_embed(weights: Sequence[torch.Tensor]) -> bool:
    # iree-compile silently leaves complex parameters where they are.
    has_complex = any(weight.is_complex() for weight in weights)
    return 0 < sum(weight.nbytes for weight in weights) <= EMBED_LIMIT_BYTES and not has_complex


def _import(program: TorchProgram, hooks: WeightHooks) -> str:
    """Return the program in the torch dialect, as text with locations, and its weights in `hooks`."""
    context = ir.Context()
    torch_dialect.register_dialect(context)
    context.allow_unregistered_dialects = True  # For `#flow.parameter.named`, which is IREE's.
    importer = FxImporter(context=context, hooks=hooks)
    with blaming(f"torch-mlir cannot import {program.origin}"):
        # Unlike import_frozen_program it knows non-persistent buffers.
        importer.import_program(program.program, func_name="main")
        return importer.module_op.get_asm(enable_debug_info=True)


def _lower(origin: str, text: str, output: Path) -> None:
    """Lower a program in a child: a pass that crashes or loops for ever must not take this process along."""
    with tempfile.TemporaryDirectory(prefix="felix_mlir_") as folder:
        source = Path(folder) / "torch.mlir"
        source.write_text(text)
        command = (
            tool_path("torch-mlir-opt"),
            "--allow-unregistered-dialect",
            f"--pass-pipeline={PIPELINE}",
            str(source),
            "-o",
            str(output),
        )
        outcome = run_compiler(command, LOWERING_LIMIT_S)
    if not outcome.ok:
        raise RequestError(f"torch-mlir cannot lower {origin}: {outcome.message}")

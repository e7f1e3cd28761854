"""PyTorch models as exported programs with example inputs and what eager torch returns for them."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree
from torch_mlir.extras.fx_decomp_util import get_decomposition_table

from felix_mlir.errors import RequestError
from felix_mlir.importers.messages import blaming
from felix_mlir.importers.tensors import tensor_to_numpy


@dataclass(frozen=True, eq=False)
class TorchProgram:
    """An exported program in operators torch-mlir knows, from tensors to tensors, that writes to no state.

    `origin` names it in error messages; `inputs` and `reference` are as in Model.
    """

    origin: str
    program: ExportedProgram
    inputs: tuple[np.ndarray, ...]
    reference: tuple[np.ndarray, ...]


def export_module(origin: str, module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> TorchProgram:
    """Export a module in evaluation mode for these positional inputs, and run it on them.

    The module and the inputs are left as they were. Raises RequestError when torch.export refuses the module,
    or the module writes to its inputs or buffers, or returns anything but tensors.
    """
    with _evaluating(module):
        with blaming(f"torch.export cannot export {origin}"), _quiet():
            program = torch.export.export(module, inputs, strict=False)
        return _finish(origin, program, inputs, {}, module)


def open_archive(path: Path) -> TorchProgram:
    """Read a program that torch.export.save wrote, and run it on its example inputs.

    Raises RequestError when the file is no such archive or brings no example inputs, and for the programs
    that `export_module` refuses.
    """
    with blaming(f"'{path}' is not a torch.export archive"), _quiet():
        program = torch.export.load(path)
    if program.example_inputs is None:
        raise RequestError(f"'{path}' holds no example inputs: save the program as torch.export.export made it")
    arguments, keywords = program.example_inputs
    return _finish(str(path), program, arguments, keywords, program.module())


def _finish(
    origin: str,
    program: ExportedProgram,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    eager: Callable[..., Any],
) -> TorchProgram:
    with blaming(f"torch.export cannot decompose {origin}"), _quiet():
        program = program.run_decompositions(get_decomposition_table())
    _check_signature(origin, program)
    # Only now, since running a model that counts its calls in a buffer would change it.
    with blaming(f"{origin} fails on its example inputs"), torch.no_grad():
        outputs = pytree.tree_leaves(eager(*arguments, **keywords))
        inputs = _input_tensors(program, arguments, keywords)
        return TorchProgram(origin, program, tuple(map(tensor_to_numpy, inputs)), tuple(map(tensor_to_numpy, outputs)))


def _check_signature(origin: str, program: ExportedProgram) -> None:
    signature = program.graph_signature
    written = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if written:
        raise RequestError(f"{origin} writes to {', '.join(written)}: return the new value instead")
    for spec in signature.input_specs:
        if spec.kind is InputKind.USER_INPUT and not isinstance(spec.arg, TensorArgument | ConstantArgument):
            raise RequestError(f"{origin} takes '{spec.arg.name}', which is no tensor: make it a constant")
    outputs = [spec.arg for spec in signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    for index, output in enumerate(outputs):
        if not isinstance(output, TensorArgument):
            raise RequestError(f"{origin} returns something other than a tensor at {index}: return tensors only")


def _input_tensors(
    program: ExportedProgram, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> list[torch.Tensor]:
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    leaves = pytree.tree_leaves((arguments, keywords))
    return [leaf for spec, leaf in zip(specs, leaves, strict=True) if not isinstance(spec.arg, ConstantArgument)]


@contextlib.contextmanager
def _evaluating(module: nn.Module) -> Generator[None]:
    flags = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, flag in flags:
            part.training = flag


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    # Beside its exceptions torch.export warns of its own deprecated calls, and logs and prints the graph of a
    # program it refuses. What the model itself prints is seen when it runs.
    disabled = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)

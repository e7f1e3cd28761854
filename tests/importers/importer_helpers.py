"""Compiling and running what the importers hand back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import iree.runtime as rt
import numpy as np
import torch

from felix_mlir.compiler.process import run_compiler, tool_path
from felix_mlir.importers import PARAMETER_SCOPE, Model
from felix_mlir.target import parse_target

COMPILE_LIMIT_S = 60.0


class Holding(torch.nn.Module):
    """A module that holds one tensor and computes `function(tensor, *inputs)`."""

    def __init__(self, tensor: torch.Tensor, function: Callable[..., object], persistent: bool = True) -> None:
        super().__init__()
        self.register_buffer("held", tensor, persistent=persistent)
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> object:
        return self.function(self.held, *inputs)


def build(model: Model) -> Path:
    """Compile a model for this machine and return the vmfb."""
    vmfb = model.mlir.parent / f"{model.name}.vmfb"
    flags = (*parse_target("cpu").compile_flags, *model.compile_flags())
    outcome = run_compiler((tool_path("iree-compile"), str(model.mlir), *flags, "-o", str(vmfb)), COMPILE_LIMIT_S)
    assert outcome.ok, outcome.message
    return vmfb


def execute(vmfb: Path, inputs: tuple[np.ndarray, ...], parameters: Path | None) -> list[np.ndarray]:
    """Run @main, with the archive `parameters` if any, and return its results."""
    config = rt.Config(parse_target("cpu").device)
    modules = [rt.create_hal_module(config.vm_instance, config.device)]
    if parameters is not None:
        index = rt.ParameterIndex()
        index.load(str(parameters))
        provider = index.create_provider(scope=PARAMETER_SCOPE)
        modules.append(rt.create_io_parameters_module(config.vm_instance, provider))
    modules.append(rt.VmModule.mmap(config.vm_instance, str(vmfb)))
    results = rt.SystemContext(vm_modules=modules, config=config).modules.module["main"](*inputs)
    results = results if isinstance(results, tuple | list) else (results,)
    return [np.asarray(result.to_host()) for result in results]


def check(model: Model, tolerance: float = 1e-5) -> None:
    """Build and run a model, and compare with eager torch: largest difference against largest value.

    An archive that is embedded is deleted before the run.
    """
    assert model.inputs is not None and model.reference is not None
    vmfb = build(model)
    if model.embed_parameters:
        assert model.parameters is not None
        model.parameters.unlink()
    results = execute(vmfb, model.inputs, None if model.embed_parameters else model.parameters)
    for raw, expected in zip(results, model.reference, strict=True):
        # iree.runtime returns every integer as signed.
        result = raw.view(expected.dtype) if expected.dtype.kind == "u" else raw
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        wide = expected.astype(np.float64)
        assert np.abs(wide).max() > 0, "nothing to compare"
        assert np.abs(result.astype(np.float64) - wide).max() <= tolerance * np.abs(wide).max()

"""The Python interface: tune a model and use the result."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felix_mlir.options import TuneOptions, choose_budget

if TYPE_CHECKING:
    import torch
    from torch import nn

    from felix_mlir.report import Report, TaskReport


@dataclass(frozen=True)
class Result:
    """A finished run: `report` is report.json, `directory` the folder of all results."""

    directory: Path
    report: Report

    @property
    def speedup(self) -> float | None:
        """The default's latency over the result's, measured in turn; 1 when the default was kept, None unmeasured."""
        return self.report["speedup"]

    @property
    def tasks(self) -> list[TaskReport]:
        return self.report["tasks"]

    @cached_property
    def module(self) -> TunedModule:
        """The tuned model, ready to call."""
        return TunedModule(self.directory / "tuned.vmfb")

    def save(self, directory: str | Path) -> None:
        """Copy the results, without the work files, to `directory`."""
        shutil.copytree(self.directory, directory, ignore=shutil.ignore_patterns("work"), dirs_exist_ok=True)


class TunedModule:
    """A compiled model on iree.runtime: call it with one array per input, get one array or a tuple back."""

    def __init__(self, vmfb: Path) -> None:
        import iree.runtime as rt

        from felix_mlir.importers import PARAMETER_SCOPE
        from felix_mlir.measure.signature import entry_point

        config = rt.Config("local-task")
        module = rt.VmModule.mmap(config.vm_instance, str(vmfb))
        modules = [rt.create_hal_module(config.vm_instance, config.device), module]
        archive = vmfb.with_suffix(".irpa")
        if archive.exists():
            index = rt.ParameterIndex()
            index.load(str(archive))
            provider = index.create_provider(scope=PARAMETER_SCOPE)
            modules.insert(1, rt.create_io_parameters_module(config.vm_instance, provider))
        self._context = rt.SystemContext(vm_modules=modules, config=config)
        self._function = self._context.modules[module.name][entry_point(vmfb)]

    def __call__(self, *inputs: Any) -> np.ndarray | tuple[np.ndarray, ...]:
        results = self._function(*(np.asarray(value) for value in inputs))
        if isinstance(results, tuple | list):
            return tuple(np.asarray(result) for result in results)
        return np.asarray(results)


def tune(
    model: str | Path | nn.Module,
    inputs: tuple[torch.Tensor, ...] | None = None,
    *,
    target: str = TuneOptions.target,
    budget: str | float | None = None,
    trials: int | None = None,
    out: str | Path | None = None,
    seed: int = TuneOptions.seed,
    search: str = TuneOptions.search,
    db: str | Path | None = None,
    measure: bool = True,
) -> Result:
    """Tune a model, or without `measure` choose its schedules by what is known and predicted, and return the result.

    `model` is an nn.Module, which `inputs` (a tuple of example tensors) then go with, or anything the command
    line takes. `budget` is seconds or a duration such as "7m" for everything; without it, and without `trials`
    (candidates to measure), it is seven minutes. `out` is the folder of the results, a new temporary one if None.
    Raises RequestError and WorkError.
    """
    from felix_mlir.report import SilentProgress
    from felix_mlir.tuning import run_tuning

    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="felix-mlir-"))
    seconds = choose_budget(budget, trials)
    options = TuneOptions(folder, target, seconds, trials, seed, search, None if db is None else Path(db), measure)
    return Result(folder, run_tuning(model, options, SilentProgress(), inputs))

"""`felix-mlir bench`: two modules timed in turn."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from felix_mlir.errors import RequestError, WorkError
from felix_mlir.importers import random_inputs
from felix_mlir.measure import Program, Runner, Status, Timing, compare, median, save_arrays, spread
from felix_mlir.measure.signature import read_signature
from felix_mlir.target import parse_target

_PAIRS = 25
_SECONDS_PER_MODULE = 1.0
_TIMEOUT_S = 600.0


class BenchResult(TypedDict):
    """`speedup` is the first module's latency over the second's, the median of pairs taken in turn."""

    first: str
    second: str
    first_ms: float
    second_ms: float
    first_spread: float
    second_spread: float
    speedup: float
    interval: list[float]
    verdict: str


def compare_modules(paths: Sequence[Path]) -> BenchResult:
    """Compare the default and tuned module of a result folder, or two modules.

    Weights outside a module are taken from the .irpa file beside it. Raises RequestError for paths that are
    not that and WorkError when a module fails to run.
    """
    first, second = _modules(paths)
    one, two = read_signature(first), read_signature(second)
    if one.inputs != two.inputs:
        raise RequestError(f"{first.name} and {second.name} take different arguments: they are not the same model")
    with tempfile.TemporaryDirectory(prefix="felix-mlir-") as folder:
        inputs = Path(folder) / "inputs.npz"
        save_arrays(inputs, "arg", list(random_inputs(one.inputs, seed=0)))
        programs = [
            Program(path, inputs, signature.function, _parameters(path))
            for path, signature in ((first, one), (second, two))
        ]
        with Runner(parse_target("cpu").device) as runner:
            a, b = runner.measure_interleaved(programs, Timing(_SECONDS_PER_MODULE, _PAIRS), _TIMEOUT_S)
    for path, measurement in ((first, a), (second, b)):
        if measurement.status is not Status.OK:
            raise WorkError(f"{path} does not run: {measurement.message} (reproduce: {measurement.command})")
    comparison = compare(a.samples, b.samples)
    return BenchResult(
        first=str(first),
        second=str(second),
        first_ms=1e3 * median(a.samples),
        second_ms=1e3 * median(b.samples),
        first_spread=spread(a.samples),
        second_spread=spread(b.samples),
        speedup=comparison.ratio,
        interval=[comparison.low, comparison.high],
        verdict=comparison.verdict.value,
    )


def _modules(paths: Sequence[Path]) -> tuple[Path, Path]:
    if len(paths) == 1 and paths[0].is_dir():
        first, second = paths[0] / "default.vmfb", paths[0] / "tuned.vmfb"
        if not (first.is_file() and second.is_file()):
            raise RequestError(f"{paths[0]} holds no finished result: run felix-mlir tune MODEL --out {paths[0]}")
        return first, second
    if len(paths) != 2 or not all(path.is_file() for path in paths):
        missing = [str(path) for path in paths if not path.is_file()]
        detail = f"{missing[0]} is no file: " if len(paths) == 2 and missing else ""
        raise RequestError(f"{detail}bench takes a result folder, or two .vmfb files")
    return paths[0], paths[1]


def _parameters(module: Path) -> Path | None:
    """The archive of a module's weights: tuned.irpa serves both modules of a result folder."""
    beside = [module.with_suffix(".irpa"), module.with_name("tuned.irpa")]
    return next((path for path in beside if path.is_file()), None)

"""What is measured, how, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from felix_mlir.measure.statistics import median
from felix_mlir.measure.status import Status


@dataclass(frozen=True)
class Program:
    """A compiled module, what to call it with and what it must return.

    `inputs` is an .npz of arg0..argN as save_arrays writes it: every argument is a tensor. `parameters` is
    the .irpa archive, scope "model", of a module whose weights are outside. `expected` is an .npz of
    out0..outN, for instance the `save_outputs` of the default; without it nothing is compared. `tolerance`
    bounds max|y - expected| / max|expected| of each floating-point output; integers and booleans must be
    equal.
    """

    vmfb: Path
    inputs: Path
    function: str = "main"
    parameters: Path | None = None
    expected: Path | None = None
    tolerance: float = 0.0


@dataclass(frozen=True)
class Timing:
    """How long to look.

    `repetitions` samples are taken, each of as many invocations as last `min_time_s` / `repetitions` seconds,
    or of `invocations` if that is given. If the sample that finds this number is slower than `cutoff_s`
    seconds per invocation, it stays the only one. It does not count otherwise.
    """

    min_time_s: float
    repetitions: int
    invocations: int | None = None
    cutoff_s: float | None = None


@dataclass(frozen=True)
class Measurement:
    """The end of one measurement.

    `samples` are seconds per invocation (with status OK at least one, with UNSTABLE those that differ too
    much, else none), `error` the largest relative error of the outputs where it is known, `message` one line
    ("" when OK), `stderr` the end of what a worker that died had written, `cut_off` whether the module was so
    slow that only one sample was taken, `command` what to run to see it again.
    """

    status: Status
    samples: tuple[float, ...]
    message: str
    error: float | None
    stderr: str
    cut_off: bool
    command: str

    @property
    def latency_s(self) -> float | None:
        """The median of the samples, in seconds per invocation; None without samples."""
        return median(self.samples) if self.samples else None

"""Building candidates and measuring them without being harmed by those that crash, hang, lie or crawl.

* `Builder` runs compiler children in parallel (`BuildJob` in, `BuildOutcome` of felix_mlir.compiler out, same
  order) and caches what they produce.
* `Runner` runs a compiled `Program` in a worker process, checks its outputs and times it. It returns a
  `Measurement` with one `Status` of a closed set for whatever the program does; only WorkError means that
  nothing can be measured.
* `compare`, `median` and `spread` say what the samples mean.
* `save_arrays` and `load_arrays` are the file format of inputs (prefix "arg") and outputs (prefix "out").

Units: every time is in seconds, every sample and latency in seconds per invocation; errors, spreads and
ratios are parts without unit. Build and measure one after the other: they must not share the cores that are
timed.
"""

from __future__ import annotations

from felix_mlir.measure.builder import Builder, BuildJob
from felix_mlir.measure.measurement import Measurement, Program, Timing
from felix_mlir.measure.runner import MAX_SPREAD, Runner
from felix_mlir.measure.statistics import (
    MIN_PAIRS,
    Comparison,
    Verdict,
    compare,
    median,
    spread,
)
from felix_mlir.measure.status import Status
from felix_mlir.measure.worker import load_arrays, save_arrays

__all__ = [
    "MAX_SPREAD",
    "MIN_PAIRS",
    "BuildJob",
    "Builder",
    "Comparison",
    "Measurement",
    "Program",
    "Runner",
    "Status",
    "Timing",
    "Verdict",
    "compare",
    "load_arrays",
    "median",
    "save_arrays",
    "spread",
]

"""felix-mlir: make models compiled by IREE faster.

`tune` searches tile sizes for a model's dispatches, measures them on the machine at hand, and returns a module
that is never slower than the compiler's default.
"""

from __future__ import annotations

from felix_mlir.api import Result, tune
from felix_mlir.errors import FelixError, RequestError, WorkError
from felix_mlir.options import TuneOptions
from felix_mlir.target import Target, parse_target

__all__ = [
    "FelixError",
    "RequestError",
    "Result",
    "Target",
    "TuneOptions",
    "WorkError",
    "parse_target",
    "tune",
]

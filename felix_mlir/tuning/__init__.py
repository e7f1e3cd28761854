"""The tuning run: every stage from model to result, its budget, its folder, and going on after an interruption.

Contract: `run_tuning` leaves a complete result in the folder it was given, never slower than the compiler's
default, or raises; whatever it measured is kept either way.
"""

from __future__ import annotations

from felix_mlir.tuning.run import run_tuning

__all__ = ["run_tuning"]

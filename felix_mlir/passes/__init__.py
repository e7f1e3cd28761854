"""Compiler passes: for iree.compiler's PassManager in Python, and the felix-iree-compile command.

Contract: passes run on a module at the executable-configurations phase, mix with textual passes, and neither lose a
configuration silently nor change anything else. Those in C++ (`add_native_*`) do the same; see `native`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from iree.compiler.passmanager import PassManager

from felix_mlir.passes.apply_tuned import Landing, apply_tuned_pass
from felix_mlir.passes.extract_tasks import ExtractedTask, extract_tasks_pass
from felix_mlir.passes.native import add_native_apply_tuned, add_native_extract_tasks, has_native
from felix_mlir.passes.rewrites import Rewrites
from felix_mlir.passes.tuned import Tuned, TunedTask, read_tuned

if TYPE_CHECKING:  # Deriving features needs torch, which takes seconds to import.
    from felix_mlir.features.report_pass import DispatchFeatures

__all__ = [
    "ExtractedTask",
    "Landing",
    "Rewrites",
    "Tuned",
    "TunedTask",
    "add_apply_tuned",
    "add_extract_tasks",
    "add_feature_report",
    "add_native_apply_tuned",
    "add_native_extract_tasks",
    "has_native",
    "read_tuned",
]


def add_apply_tuned(
    pm: PassManager,
    tuned: Tuned | Path | str,
    *,
    require_landed: bool = True,
    sink: Callable[[Landing], None] | None = None,
) -> None:
    """Add the pass that writes tuned configurations: a result, or the folder or file it is in.

    `sink` gets what became of each task. The pass fails when a dispatch does not take its configuration, unless
    `require_landed` is False. Raises RequestError for what cannot be read.
    """
    if not isinstance(tuned, Tuned):
        tuned = read_tuned(Path(tuned), version("iree-base-compiler"))
    pm.add(apply_tuned_pass(tuned, require_landed, sink))


def add_extract_tasks(pm: PassManager, sink: Callable[[ExtractedTask], None]) -> None:
    """Add the pass that calls `sink` with every task of the module, in order of appearance."""
    pm.add(extract_tasks_pass(sink))


def add_feature_report(pm: PassManager, sink: Callable[[DispatchFeatures], None]) -> None:
    """Add the pass that calls `sink` with the features of every dispatch, in order."""
    from felix_mlir.features.report_pass import feature_report_pass

    pm.add(feature_report_pass(sink))

"""Showing a run: progress while it works, and its report afterwards.

Contract: the terminal shows nothing that report.json does not hold.
"""

from __future__ import annotations

from felix_mlir.report.document import (
    NOT_MEASURED,
    AlternativeReport,
    KernelReport,
    Report,
    SketchTiming,
    StructureReport,
    TaskIdentity,
    TaskReport,
    UnmeasuredReport,
    identity_cells,
    show,
    task_table,
    wide_console,
)
from felix_mlir.report.progress import (
    PlainProgress,
    Progress,
    SilentProgress,
    TaskRow,
    terminal_progress,
)

__all__ = [
    "NOT_MEASURED",
    "AlternativeReport",
    "KernelReport",
    "PlainProgress",
    "Progress",
    "Report",
    "SilentProgress",
    "SketchTiming",
    "StructureReport",
    "TaskIdentity",
    "TaskReport",
    "TaskRow",
    "UnmeasuredReport",
    "identity_cells",
    "show",
    "task_table",
    "terminal_progress",
    "wide_console",
]

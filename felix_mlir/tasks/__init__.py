"""From a compiled model to its tasks: what there is to tune, how often it runs and what it costs.

Contract: `extract_tasks` accounts for every dispatch of the model, each as a `Task` that is either tunable or
carries the reason why not.
"""

from __future__ import annotations

from felix_mlir.tasks.extract import extract_tasks, task_id
from felix_mlir.tasks.inputs import read_input_types
from felix_mlir.tasks.isolate import TensorType
from felix_mlir.tasks.profile import Profile, profile_dispatches
from felix_mlir.tasks.task import Task, TunableTask

__all__ = [
    "Profile",
    "Task",
    "TensorType",
    "TunableTask",
    "extract_tasks",
    "profile_dispatches",
    "read_input_types",
    "task_id",
]

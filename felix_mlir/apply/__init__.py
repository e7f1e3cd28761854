"""Turning choices into compiled modules: whole-model alternatives and configurations, checked to have landed.

Contract: nothing is silently lost. A build says for every configuration whether the compiler used it.
"""

from __future__ import annotations

from felix_mlir.apply.alternatives import ALTERNATIVES, DEFAULT, Alternative, alternative_named
from felix_mlir.apply.build import ModelBuild, build_model, compile_to_flow, tuned_task, with_tasks
from felix_mlir.apply.check_spec import compile_by_spec
from felix_mlir.apply.tuned import Applied, compile_tuned

__all__ = [
    "ALTERNATIVES",
    "DEFAULT",
    "Alternative",
    "Applied",
    "ModelBuild",
    "alternative_named",
    "build_model",
    "compile_by_spec",
    "compile_to_flow",
    "compile_tuned",
    "tuned_task",
    "with_tasks",
]

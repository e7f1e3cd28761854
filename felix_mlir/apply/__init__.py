"""Turning choices into compiled modules: whole-model alternatives and configurations, checked to have landed.

Contract: nothing is silently lost. A build says for every configuration whether the compiler used it.
"""

from __future__ import annotations

from felix_mlir.apply.alternatives import DEFAULT, Alternative, variants
from felix_mlir.apply.build import (
    ModelBuild,
    build_model,
    compile_to_flow,
    compile_to_preprocessing,
    tuned_task,
    with_tasks,
)
from felix_mlir.apply.check_spec import compile_by_spec
from felix_mlir.apply.tuned import Applied, compile_tuned

__all__ = [
    "DEFAULT",
    "Alternative",
    "Applied",
    "ModelBuild",
    "build_model",
    "compile_by_spec",
    "compile_to_flow",
    "compile_to_preprocessing",
    "compile_tuned",
    "tuned_task",
    "variants",
    "with_tasks",
]

"""Turning choices into compiled modules: whole-model alternatives and configurations, checked to have landed.

Contract: nothing is silently lost. A build says for every configuration whether the compiler used it.
"""

from __future__ import annotations

from felix_mlir.apply.alternatives import ALTERNATIVES, DEFAULT, Alternative, alternative_named
from felix_mlir.apply.build import ModelBuild, build_model, compile_to_flow
from felix_mlir.apply.tuned import MANIFEST_FORMAT, Applied, compile_tuned, read_manifest

__all__ = [
    "ALTERNATIVES",
    "DEFAULT",
    "MANIFEST_FORMAT",
    "Alternative",
    "Applied",
    "ModelBuild",
    "alternative_named",
    "build_model",
    "compile_to_flow",
    "compile_tuned",
    "read_manifest",
]

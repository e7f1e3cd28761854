"""Compiling a whole model, plain or with the configurations of its tuned tasks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from felix_mlir.apply.alternatives import Alternative
from felix_mlir.compiler.process import BuildOutcome, run_compiler, tool_path
from felix_mlir.importers import Model
from felix_mlir.schedule import Configuration
from felix_mlir.target import Target


@dataclass(frozen=True)
class ModelBuild:
    """The end of a whole-model compile.

    `landing` has, for each executable a configuration was given for, "" if it landed and else why it did not.
    """

    outcome: BuildOutcome
    landing: Mapping[str, str]

    @property
    def not_landed(self) -> dict[str, str]:
        return {name: reason for name, reason in self.landing.items() if reason}


def compile_to_flow(
    model: Model, alternative: Alternative, target: Target, output: Path, timeout_s: float
) -> BuildOutcome:
    """Compile a model to the `flow` phase, where its dispatches are formed; `output` becomes MLIR bytecode."""
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    outcome = run_compiler(
        [
            tool_path("iree-compile"), str(model.mlir), *target.compile_flags, *model.compile_flags(),
            *alternative.flags, "--compile-to=flow", "--emit-mlir-bytecode", "-o", str(temporary),
        ],
        timeout_s,
    )  # fmt: skip
    if outcome.ok:
        temporary.replace(output)
    return outcome


def build_model(
    flow: Path,
    alternative: Alternative,
    target: Target,
    configurations: Mapping[str, Configuration],
    output: Path,
    timeout_s: float,
) -> ModelBuild:
    """Compile a model from its `flow` phase to `output`, with `configurations` by executable name."""
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    chosen = output.with_name(f"{output.stem}.configurations.json")
    landing = output.with_name(f"{output.stem}.landing.json")
    chosen.write_text(json.dumps({name: c.to_json() for name, c in configurations.items()}))
    landing.unlink(missing_ok=True)
    outcome = run_compiler(
        [
            sys.executable, "-m", "felix_mlir.compiler.driver", str(flow), "-o", str(temporary),
            "--configurations", str(chosen), "--landing", str(landing), *target.compile_flags, *alternative.flags,
        ],
        timeout_s,
    )  # fmt: skip
    if outcome.ok:
        temporary.replace(output)
    return ModelBuild(outcome, json.loads(landing.read_text()) if landing.exists() else {})

"""Compiling a whole model, plain or with the configurations of its tuned tasks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from iree.compiler import ir

from felix_mlir.apply.alternatives import Alternative
from felix_mlir.compiler.process import BuildOutcome, run_compiler, tool_path
from felix_mlir.importers import Model
from felix_mlir.passes.apply_tuned import read_missing_roots, read_problems
from felix_mlir.passes.canonical import canonical_form
from felix_mlir.passes.rewrites import PREPROCESSING
from felix_mlir.passes.tuned import FILE_NAME, Tuned, TunedTask, write_tuned
from felix_mlir.schedule import Configuration, configured_functions, read_dispatch
from felix_mlir.target import Target

_DRIVER = (sys.executable, "-m", "felix_mlir.passes.driver")


@dataclass(frozen=True)
class ModelBuild:
    """The end of a whole-model compile.

    By task: `missing` says that the model has no dispatch of it, `not_landed` why one it has did not take its
    configuration.
    """

    outcome: BuildOutcome
    missing: Mapping[str, str]
    not_landed: Mapping[str, str]


def compile_to_flow(model: Model, tuned: Tuned, output: Path, timeout_s: float) -> BuildOutcome:
    """Compile a model to the `flow` phase, where its dispatches are formed; `output` becomes MLIR bytecode.

    Flags and rewrites are those of `tuned`. The compilation fails if a rewrite was not applied, and the message names
    its op.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    if tuned.rewrites is None:
        command = [tool_path("iree-compile"), str(model.mlir), *tuned.target_flags, *tuned.model_flags]
    else:
        configurations = output.with_name(f"{output.stem}.{FILE_NAME}")
        write_tuned(tuned, configurations)
        command = [*_DRIVER, str(model.mlir), f"--felix-tuned={configurations}", "--felix-print-landed=true"]
    outcome = run_compiler(
        [
            *command, *model.compile_flags(), "--compile-to=flow", "--emit-mlir-bytecode", "-o", str(temporary),
        ],
        timeout_s,
    )  # fmt: skip
    if outcome.ok:
        temporary.replace(output)
    elif unapplied := read_missing_roots(outcome.stderr):
        outcome = replace(outcome, message="; ".join(f"the rewrite of op {root} was not applied" for root in unapplied))
    return outcome


def compile_to_preprocessing(model: Model, target: Target, output: Path, timeout_s: float) -> BuildOutcome:
    """Compile a model as far as ops can be rewritten, before IREE's own optimisations; `output` is MLIR bytecode."""
    output.parent.mkdir(parents=True, exist_ok=True)
    return run_compiler(
        [
            tool_path("iree-compile"), str(model.mlir), *target.compile_flags, *model.compile_flags(),
            f"--compile-to={PREPROCESSING}", "--emit-mlir-bytecode", "-o", str(output),
        ],
        timeout_s,
    )  # fmt: skip


def tuned_task(id_: str, configured: Path, configuration: Configuration) -> TunedTask:
    """Return what puts a configuration into models; `configured` is the task's program at executable-configurations."""
    with ir.Context():
        module = ir.Module.parse(configured.read_text())
        function = next(iter(configured_functions(module.operation).values()))
        dispatch = read_dispatch(function)
        attributes = configuration.attributes(function)
        return TunedTask(id_, canonical_form(function), attributes, configuration.workgroups(dispatch))


def with_tasks(model: str, target: Target, alternative: Alternative, tasks: Sequence[TunedTask] = ()) -> Tuned:
    """Return the result that compiles a model as `alternative` says, with the configurations of `tasks`."""
    compiler = version("iree-base-compiler")
    flags = target.compile_flags, alternative.flags
    return Tuned(model, target.name, compiler, *flags, tuple(tasks), alternative.rewrites)


def build_model(flow: Path, tuned: Tuned, output: Path, timeout_s: float) -> ModelBuild:
    """Compile a model from its `flow` phase to `output`, with the flags and configurations of `tuned`.

    Configurations that do not land are no failure of the build: the module is written without them.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    configurations = output.with_name(f"{output.stem}.{FILE_NAME}")
    write_tuned(tuned, configurations)
    outcome = run_compiler(
        [
            *_DRIVER, str(flow), "-o", str(temporary), "--compile-from=flow",
            f"--felix-tuned={configurations}", "--felix-require-landed=false", "--felix-print-landed",
        ],
        timeout_s,
    )  # fmt: skip
    if outcome.ok:
        temporary.replace(output)
    missing, not_landed = read_problems(outcome.stderr)
    return ModelBuild(outcome, missing, not_landed)

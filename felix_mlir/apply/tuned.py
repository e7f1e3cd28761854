"""Applying an earlier result to a model: the same flags, the same configurations, nothing measured."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from felix_mlir.apply.build import build_model, compile_to_flow
from felix_mlir.errors import RequestError, WorkError
from felix_mlir.importers import load_model
from felix_mlir.passes.apply_tuned import read_missing_roots
from felix_mlir.passes.tuned import Tuned, read_tuned
from felix_mlir.target import Target, parse_target

_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Applied:
    """`landed` are the task ids whose configurations are in the module, `parameters` its side file, if any.

    `missing` has, for the tasks the model has no dispatch of, what is said of that.
    """

    landed: tuple[str, ...]
    missing: Mapping[str, str]
    parameters: Path | None


def read_for_target(directory: Path, target: Target, output: Path) -> Tuned:
    """Read a result to compile to `output`.

    Raises RequestError for one of another target or compiler, and for an output that is a directory.
    """
    tuned = read_tuned(directory, version("iree-base-compiler"))
    if tuned.target != target.name:
        raise RequestError(f"{directory} was tuned for {tuned.target}, not {target.name}: tune for {target.name}")
    if output.is_dir():
        raise RequestError(f"{output} is a directory: name the module to write")
    return tuned


def compile_tuned(source: str, target_name: str, directory: Path, output: Path) -> Applied:
    """Compile a model with the result in `directory` to `output`.

    Raises RequestError when the result is for another target, compiler or model, and WorkError when the
    compiler fails, a rewrite is not applied or a configuration does not land.
    """
    target = parse_target(target_name)
    tuned = read_for_target(directory, target, output)
    work = output.absolute().with_name(f".{output.name}.work")
    try:
        model = load_model(source, work)
        flow = work / "flow.mlirbc"
        outcome = compile_to_flow(model, tuned, flow, _TIMEOUT_S)
        unapplied = read_missing_roots(outcome.stderr)
        if unapplied and tuned.rewrites is not None:
            if set(unapplied) == set(tuned.rewrites.roots):
                raise RequestError(f"{directory} was tuned for another model ({tuned.model}): none of its ops is here")
            raise WorkError(outcome.failure)
        if not outcome.ok:
            raise RequestError(f"iree-compile rejects {source}: {outcome.message}")
        build = build_model(flow, tuned, work / "model.vmfb", _TIMEOUT_S)
        if not build.outcome.ok:
            raise WorkError(build.outcome.failure)
        # What was rewritten is the model's.
        if tuned.rewrites is None and tuned.tasks and set(build.missing) == {task.id for task in tuned.tasks}:
            near = "".join(f"\n  task {id_} {why}" for id_, why in build.missing.items())
            raise RequestError(
                f"{directory} was tuned for another model ({tuned.model}): none of its tasks is here{near}"
            )
        if build.not_landed:
            reasons = "; ".join(f"task {id_} {why}" for id_, why in build.not_landed.items())
            raise WorkError(f"configurations did not land: {reasons}")
        (work / "model.vmfb").replace(output)
        parameters = None
        if model.parameters is not None and not model.embed_parameters:
            parameters = output.with_suffix(".irpa")
            shutil.copyfile(model.parameters, parameters)
    except RequestError:
        shutil.rmtree(work, ignore_errors=True)
        raise
    shutil.rmtree(work)  # Kept after a WorkError: its files reproduce it.
    landed = tuple(task.id for task in tuned.tasks if task.id not in build.missing)
    return Applied(landed, build.missing, parameters)

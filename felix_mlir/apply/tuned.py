"""Applying an earlier result to a model: the same alternative, the same configurations, nothing measured."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from felix_mlir.apply.alternatives import alternative_named
from felix_mlir.apply.build import build_model, compile_to_flow
from felix_mlir.errors import RequestError, WorkError
from felix_mlir.importers import load_model
from felix_mlir.schedule import Configuration
from felix_mlir.target import parse_target
from felix_mlir.tasks.extract import group_executables

MANIFEST_FORMAT = 1
_TIMEOUT_S = 900.0
_KEYS = {"format", "model", "target", "versions", "alternative", "tasks"}


@dataclass(frozen=True)
class Applied:
    """`landed` are the task ids whose configurations are in the module, `parameters` its side file, if any."""

    landed: tuple[str, ...]
    missing: tuple[str, ...]
    parameters: Path | None


def read_manifest(directory: Path) -> dict[str, Any]:
    """Read a result folder's manifest; raises RequestError when there is none this version can apply."""
    path = directory / "manifest.json"
    if not path.is_file():
        raise RequestError(f"{directory} holds no tuning result: run felix-mlir tune MODEL --out {directory}")
    try:
        manifest = json.loads(path.read_text())
        version_ = manifest["format"]
        is_whole = manifest.keys() >= _KEYS and "iree-base-compiler" in manifest["versions"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(f"{path} is damaged: tune again") from error
    if version_ != MANIFEST_FORMAT:
        raise RequestError(f"{path} was written by another version of felix-mlir: tune again")
    if not is_whole:
        raise RequestError(f"{path} is damaged: tune again")
    return manifest


def compile_tuned(source: str, target_name: str, directory: Path, output: Path) -> Applied:
    """Compile a model with the result in `directory` to `output`.

    Raises RequestError when the result is for another target, compiler or model, and WorkError when the
    compiler fails or a configuration does not land.
    """
    manifest = read_manifest(directory)
    target = parse_target(target_name)
    compiler = version("iree-base-compiler")
    if manifest["target"] != target.name:
        raise RequestError(f"{directory} was tuned for {manifest['target']}, not {target.name}: tune for {target.name}")
    tuned_with = manifest["versions"]["iree-base-compiler"]
    if tuned_with != compiler:
        raise RequestError(f"{directory} was tuned with iree-base-compiler {tuned_with}, not {compiler}: tune again")
    try:
        alternative = alternative_named(manifest["alternative"])
    except KeyError as error:
        raise RequestError(f"{directory} uses an alternative this version does not know: tune again") from error
    if output.is_dir():
        raise RequestError(f"{output} is a directory: name the module to write")
    work = output.absolute().with_name(f".{output.name}.work")
    try:
        model = load_model(source, work)
        flow = work / "flow.mlirbc"
        outcome = compile_to_flow(model, alternative, target, flow, _TIMEOUT_S)
        if not outcome.ok:
            raise RequestError(f"iree-compile rejects {source}: {outcome.message}")
        groups = group_executables(flow, target)
        tuned = {id_: Configuration.from_json(entry["configuration"]) for id_, entry in manifest["tasks"].items()}
        if tuned and not tuned.keys() & groups.keys():
            raise RequestError(
                f"{directory} was tuned for another model ({manifest['model']}): none of its tasks is here"
            )
        configurations = {name: tuned[id_] for id_, names in groups.items() if id_ in tuned for name in names}
        build = build_model(flow, alternative, target, configurations, work / "model.vmfb", _TIMEOUT_S)
        if not build.outcome.ok:
            raise WorkError(f"{build.outcome.message} (reproduce: {shlex.join(build.outcome.command)})")
        if build.not_landed:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in build.not_landed.items())
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
    landed = tuple(id_ for id_ in tuned if id_ in groups)
    return Applied(landed, tuple(id_ for id_ in tuned if id_ not in groups), parameters)

"""manifest.json: where a result came from. What it takes to apply it is in configurations.mlir."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from felix_mlir.errors import RequestError
from felix_mlir.tuning.finish import Result
from felix_mlir.tuning.request import RunRequest

MANIFEST_FORMAT = 2
_PACKAGES = ("felix-mlir", "iree-base-compiler", "iree-base-runtime", "torch-mlir", "torch")
_KEYS = {"format", "model", "target", "host", "versions", "alternative", "tasks"}


def make_manifest(request: RunRequest, result: Result) -> dict[str, Any]:
    """Return the manifest of a run."""
    return {
        "format": MANIFEST_FORMAT,
        "model": request.source,
        "target": request.session.target.name,
        "seed": request.options.seed,
        "host": request.session.host,
        "versions": {name: version(name) for name in _PACKAGES},
        "alternative": result.build.alternative.name,
        "tasks": {
            id_: {
                "template": choice.candidate.template,
                "knobs": dict(choice.candidate.values),
            }
            for id_, choice in result.choices.items()
            if result.winner == "tuned" and choice.candidate is not None
        },
    }  # fmt: skip


def read_manifest(directory: Path) -> dict[str, Any]:
    """Read a result folder's manifest; raises RequestError when there is none this version wrote."""
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

"""Compiling with a stock iree-compile and a tuning spec, and reading back what of it is in the module."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from iree.compiler import ir

from felix_mlir.apply.tuned import read_for_target
from felix_mlir.compiler.process import run_compiler, tool_path
from felix_mlir.errors import RequestError, WorkError
from felix_mlir.importers import load_model
from felix_mlir.passes.apply_tuned import Landing, RewriteLanding, check_rewrites, check_tuned
from felix_mlir.passes.rewrites import PREPROCESSING, SPEC_FLAG, Rewrites
from felix_mlir.passes.tuned import configurations_file, rewrites_file
from felix_mlir.passes.tuning_spec import FILE_NAME, LIBRARY_FLAG
from felix_mlir.target import parse_target

_TIMEOUT_S = 900.0
# Weights are not looked at; written out they would take most of the time.
_READ_BACK = ("--mlir-elide-elementsattrs-if-larger=16", "--mlir-elide-resource-strings-if-larger=16")
_CONFIGURED = ("--compile-to=executable-configurations", "--iree-codegen-add-tuner-attributes", *_READ_BACK)
_PREPROCESSED = (f"--compile-to={PREPROCESSING}", *_READ_BACK)


def compile_by_spec(source: str, target_name: str, directory: Path, output: Path) -> list[RewriteLanding | Landing]:
    """Compile a model to `output` with iree-compile itself and the scripts in `directory`.

    Returns what became of each rewritten op and each task of the result. Raises RequestError and WorkError as
    `compile_tuned` does.
    """
    target = parse_target(target_name)
    tuned = read_for_target(directory, target, output)
    spec = directory / FILE_NAME
    if not spec.is_file():
        raise RequestError(f"{directory} holds no {FILE_NAME}: run felix-mlir tune MODEL --out {directory}")
    with tempfile.TemporaryDirectory(prefix="felix-mlir-") as folder:
        model = load_model(source, Path(folder))
        flags = (*target.compile_flags, *model.compile_flags(), *tuned.model_flags, f"{LIBRARY_FLAG}={spec}")
        if tuned.rewrites is not None:
            flags = (*flags, f"{SPEC_FLAG}={rewrites_file(configurations_file(directory))}")
        module = Path(folder) / "model.vmfb"
        _compile(model.mlir, flags, module)
        landings = _rewrite_landings(model.mlir, flags, tuned.rewrites, Path(folder) / "preprocessed.mlir")
        configured = _compile(model.mlir, (*flags, *_CONFIGURED), Path(folder) / "configured.mlir")
        with ir.Context():
            tasks = check_tuned(ir.Module.parse(configured.read_text()).operation, tuned)
        output.write_bytes(module.read_bytes())
    return [*landings, *tasks]


def _rewrite_landings(
    source: Path, flags: Sequence[str], rewrites: Rewrites | None, preprocessed: Path
) -> list[RewriteLanding]:
    if rewrites is None:
        return []
    _compile(source, (*flags, *_PREPROCESSED), preprocessed)
    with ir.Context():
        return check_rewrites(ir.Module.parse(preprocessed.read_text()).operation, rewrites)


def _compile(source: Path, flags: Sequence[str], output: Path) -> Path:
    """Compile to `output` and return it; raises WorkError."""
    outcome = run_compiler([tool_path("iree-compile"), str(source), *flags, "-o", str(output)], _TIMEOUT_S)
    if not outcome.ok:
        raise WorkError(outcome.failure)
    return output

"""Models compiled with rewrites: they are applied, or it is said which were not, and nothing is written."""

from __future__ import annotations

import shlex
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from configured import CPU, compile_checked
from iree.compiler import ir
from passes.rewritten import ABSENT, ROOT, another_model, make_rewritten, script

from felix_mlir.apply import DEFAULT, compile_by_spec, compile_to_flow, compile_tuned, with_tasks
from felix_mlir.compiler.process import BuildStatus
from felix_mlir.errors import RequestError, WorkError
from felix_mlir.importers import load_model
from felix_mlir.passes import Rewrites
from felix_mlir.passes.rewrites import PREPROCESSING, SPEC_FLAG, missing_roots
from felix_mlir.passes.tuned import FILE_NAME, REWRITES_FILE_NAME, write_tuned
from felix_mlir.passes.tuning_spec import FILE_NAME as TUNING_SPEC
from felix_mlir.sketches import read_roots, rewrite_script, sketches_of
from felix_mlir.tasks import extract_tasks
from felix_mlir.tuning.schedules import spec_text


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory):
    return make_rewritten(tmp_path_factory.mktemp("rewritten"))


def test_an_alternative_brings_its_rewrites():
    rewrites = Rewrites((ROOT,), script(ROOT))
    assert with_tasks("m", CPU, replace(DEFAULT, rewrites=rewrites)).rewrites == rewrites
    assert with_tasks("m", CPU, DEFAULT).rewrites is None


def test_a_model_without_an_op_to_rewrite_is_not_compiled(rewritten, tmp_path):
    model, output = load_model(str(rewritten.source), tmp_path), tmp_path / "flow.mlirbc"
    assert compile_to_flow(model, rewritten.tuned, output, 120).ok
    assert sorted(path.name for path in tmp_path.glob("flow*")) == [
        "flow.configurations.mlir",
        "flow.mlirbc",
        "flow.rewrites.mlir",
    ]
    output.unlink()
    for tuned in (rewritten.with_roots(ROOT, ABSENT), another_model()):
        outcome = compile_to_flow(model, tuned, output, 120)
        assert outcome.status is BuildStatus.COMPILE_ERROR
        assert outcome.message == f"the rewrite of op {ABSENT} was not applied"
        assert not output.exists()


def test_a_result_is_applied_or_refused(rewritten, tmp_path):
    source, output = str(rewritten.source), tmp_path / "out.vmfb"
    partial = rewritten.result(rewritten.with_roots(ROOT, ABSENT), "partial")
    with pytest.raises(WorkError, match=f"^the rewrite of op {ABSENT} was not applied"):
        compile_tuned(source, "cpu", partial, output)
    another = rewritten.result(another_model(), "another")
    with pytest.raises(RequestError, match=r"was tuned for another model \(another\.mlir\): none of its ops is here"):
        compile_tuned(source, "cpu", another, output)
    damaged = rewritten.result(rewritten.tuned, "damaged")
    (damaged / REWRITES_FILE_NAME).write_text(script(ROOT)[:-60])
    with pytest.raises(RequestError, match=r"rewrites\.mlir is damaged: tune again"):
        compile_tuned(source, "cpu", damaged, output)
    assert not output.exists()
    applied = compile_tuned(source, "cpu", rewritten.folder / "tuned", output)
    assert set(applied.landed) == {task.id for task in rewritten.tuned.tasks}
    assert output.exists()


@pytest.fixture(scope="module")
def with_spec(rewritten):
    """A result folder as a tuning run writes it."""
    folder = rewritten.result(rewritten.tuned, "with_spec")
    tasks = extract_tasks(rewritten.folder / "flow.mlirbc", CPU, rewritten.folder / "tasks")
    result = cast("Any", SimpleNamespace(build=SimpleNamespace(tuned=rewritten.tuned)))
    (folder / TUNING_SPEC).write_text(spec_text(tasks, result))
    return folder


def test_the_stock_compiler_rewrites_and_it_is_read_back(rewritten, with_spec, tmp_path):
    landings = compile_by_spec(str(rewritten.source), "cpu", with_spec, tmp_path / "out.vmfb")
    assert [landing.subject for landing in landings] == [f"op {ROOT}", *(f"task {t.id}" for t in rewritten.tuned.tasks)]
    assert all(landing.has_landed for landing in landings)
    assert landings[0].lines() == [f"felix: op {ROOT} was rewritten"]
    write_tuned(rewritten.with_roots(ABSENT), with_spec / FILE_NAME)
    (with_spec / REWRITES_FILE_NAME).write_text(script(ABSENT).replace("28x28", "27x27").replace("30x30", "29x29"))
    landings = compile_by_spec(str(rewritten.source), "cpu", with_spec, tmp_path / "out.vmfb")
    assert not any(landing.has_landed for landing in landings)
    assert landings[0].lines() == [f"felix: op {ABSENT} is not here: its rewrite was not applied"]


def test_the_command_in_a_tuning_spec_rewrites(rewritten, with_spec, tmp_path, monkeypatch):
    write_tuned(rewritten.tuned, with_spec / FILE_NAME)
    (line,) = (line for line in (with_spec / TUNING_SPEC).read_text().splitlines() if "iree-compile MODEL" in line)
    flags = shlex.split(line.removeprefix("//"))[2:]
    assert f"{SPEC_FLAG}={REWRITES_FILE_NAME}" in flags
    monkeypatch.chdir(with_spec)
    compile_checked(str(rewritten.source), *flags, f"--compile-to={PREPROCESSING}", "-o", str(tmp_path / "out.mlir"))
    with ir.Context():
        assert missing_roots(ir.Module.parse((tmp_path / "out.mlir").read_text()).operation, [ROOT]) == []


def test_sketches_make_the_same_module_wherever_their_script_is(rewritten, tmp_path):
    """By `felix-mlir compile` and iree-compile; what names ops in a script must not make modules differ."""
    preprocessed = tmp_path / "preprocessed.mlir"
    compile_checked(str(rewritten.source), *CPU.compile_flags, f"--compile-to={PREPROCESSING}", "-o", str(preprocessed))
    (root,) = read_roots(preprocessed)
    sketch = next(sketch for sketch in sketches_of(root, 32) if sketch.name == "gemm")
    rewrites = Rewrites((root.id,), rewrite_script([(root, sketch)]))
    folder = rewritten.result(with_tasks("model.mlir", CPU, replace(DEFAULT, rewrites=rewrites)), "sketch")
    assert compile_tuned(str(rewritten.source), "cpu", folder, tmp_path / "ours.vmfb").missing == {}
    for name in ("one.vmfb", "two.vmfb"):
        compile_checked(str(rewritten.source), *CPU.compile_flags, f"{SPEC_FLAG}={folder / REWRITES_FILE_NAME}",
                        "-o", str(tmp_path / name))  # fmt: skip
        assert (tmp_path / name).read_bytes() == (tmp_path / "ours.vmfb").read_bytes()

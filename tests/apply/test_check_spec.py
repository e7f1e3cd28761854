"""`felix-mlir compile --check-spec`: the stock compiler with a result's tuning_spec.mlir, and what of it landed."""

from __future__ import annotations

import shutil

import pytest
from configured import CPU, write_flow
from passes.conftest import MODEL, draw

from felix_mlir.apply import compile_by_spec
from felix_mlir.errors import RequestError
from felix_mlir.measure.signature import read_signature
from felix_mlir.passes.tuned import FILE_NAME, write_tuned
from felix_mlir.passes.tuning_spec import FILE_NAME as SPEC
from felix_mlir.passes.tuning_spec import SpecTask, tuning_spec
from felix_mlir.tasks import extract_tasks


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """A model and a result folder with a tuning spec."""
    folder = tmp_path_factory.mktemp("result")
    tasks = extract_tasks(write_flow(MODEL, folder), CPU, folder / "tasks")
    tuned = draw(tasks)
    programs = {task.id: task.tunable.configured.read_text() for task in tasks if task.tunable}
    spec = tuning_spec([SpecTask(t.id, programs[t.id], t.attributes) for t in tuned.tasks], tuned.target_flags)
    assert spec.uncarried == {}
    (folder / "tuned").mkdir()
    write_tuned(tuned, folder / "tuned" / FILE_NAME)
    (folder / "tuned" / SPEC).write_text(spec.text)
    return folder / "model.mlir", folder / "tuned", tuned


def test_every_task_lands_in_the_stock_compilers_module(result, tmp_path):
    source, folder, tuned = result
    landings = compile_by_spec(str(source), "cpu", folder, tmp_path / "out.vmfb")
    assert [landing.task for landing in landings if landing.has_landed] == [task.id for task in tuned.tasks]
    assert read_signature(tmp_path / "out.vmfb").function == "main"


def test_what_the_stock_compiler_does_not_take_is_said(result, tmp_path):
    source, folder, _ = result
    shutil.copytree(folder, tmp_path / "copy")
    text = (folder / SPEC).read_text()
    sizes = "vector_common_parallel = ["
    assert sizes in text
    (tmp_path / "copy" / SPEC).write_text(text.replace(sizes, f"{sizes}1, 1, 1, 1], vector_inner_parallel = [", 1))
    landings = compile_by_spec(str(source), "cpu", tmp_path / "copy", tmp_path / "out.vmfb")
    lost = [landing for landing in landings if not landing.has_landed]
    assert lost
    assert all("read back differently" in landing.problem for landing in lost)


def test_a_result_without_a_spec_is_refused(result, tmp_path):
    source, folder, _ = result
    shutil.copy(folder / FILE_NAME, tmp_path)
    with pytest.raises(RequestError, match=r"holds no tuning_spec\.mlir"):
        compile_by_spec(str(source), "cpu", tmp_path, tmp_path / "out.vmfb")

"""Applying configurations to whole models: they land, or the build says which did not and why."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
from configured import CPU, write_flow
from ops import conv2d_nchw, matmul

from felix_mlir.apply import DEFAULT, Alternative, build_model, compile_tuned, tuned_task, variants, with_tasks
from felix_mlir.errors import RequestError
from felix_mlir.importers import random_inputs
from felix_mlir.measure import Program, Runner, Status, Timing, save_arrays
from felix_mlir.measure.signature import read_signature
from felix_mlir.passes.rewrites import Rewrites
from felix_mlir.passes.tuned import FILE_NAME, Tuned, TunedTask, write_tuned
from felix_mlir.schedule import LegalSpace
from felix_mlir.tasks import extract_tasks

MODEL = conv2d_nchw(30, 16, 32, 3, epilogue=True)
COMPILER = version("iree-base-compiler")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    flow = write_flow(MODEL, folder)
    return folder, flow, extract_tasks(flow, CPU, folder / "tasks")


def draw(tasks, seed=0) -> dict[str, TunedTask]:
    """A drawn configuration for every tunable task, by its id."""
    chosen = {}
    for task in tasks:
        if task.tunable:
            template = task.tunable.templates[0]
            (values,) = LegalSpace(template).draw(1, np.random.default_rng(seed))
            chosen[task.id] = tuned_task(task.id, task.tunable.configured, template.configuration(values))
    return chosen


def tuned_with(*tasks: TunedTask) -> Tuned:
    return with_tasks("model.mlir", CPU, DEFAULT, tasks)


def test_without_configurations_the_result_is_iree_compiles_own(model, tmp_path):
    from felix_mlir.compiler.process import run_compiler, tool_path

    folder, flow, _ = model
    ours, theirs = tmp_path / "ours.vmfb", tmp_path / "theirs.vmfb"
    assert build_model(flow, tuned_with(), ours, 120).outcome.ok
    command = [tool_path("iree-compile"), str(folder / "model.mlir"), *CPU.compile_flags, "-o", str(theirs)]
    assert run_compiler(command, 120).ok
    assert ours.read_bytes() == theirs.read_bytes()


def test_every_configuration_lands_and_the_model_computes_the_same(model, tmp_path):
    _, flow, tasks = model
    plain, tuned = tmp_path / "plain.vmfb", tmp_path / "tuned.vmfb"
    assert build_model(flow, tuned_with(), plain, 120).outcome.ok
    build = build_model(flow, tuned_with(*draw(tasks).values()), tuned, 120)
    assert build.outcome.ok
    assert (build.missing, build.not_landed) == ({}, {})
    assert plain.read_bytes() != tuned.read_bytes()
    inputs, expected = tmp_path / "in.npz", tmp_path / "out.npz"
    save_arrays(inputs, "arg", list(random_inputs(read_signature(plain).inputs, 0)))
    with Runner(CPU.device) as runner:
        assert runner.measure(Program(plain, inputs), Timing(0.001, 1), 60, expected).status is Status.OK
        program = Program(tuned, inputs, expected=expected, tolerance=1e-5)
        assert runner.measure(program, Timing(0.001, 1), 60).status is Status.OK


def test_what_does_not_land_is_named(model, tmp_path):
    """Too few compute ops, another form, a distribution that code generation ignores: each is told apart."""
    _, flow, tasks = model
    good, *_ = draw(tasks).values()
    short = replace(good.attributes, lowering_configs=good.attributes.lowering_configs[:1])
    elsewhere = replace(good, id="elsewhere", form=good.form.replace("16x", "17x"))
    build = build_model(flow, tuned_with(replace(good, attributes=short), elsewhere), tmp_path / "x.vmfb", 120)
    assert build.outcome.ok
    assert "compute ops" in build.not_landed[good.id]
    assert "has type" in build.missing["elsewhere"]
    ignored = replace(good, workgroups=good.workgroups + 1)
    build = build_model(flow, tuned_with(ignored), tmp_path / "x.vmfb", 120)
    assert "workgroups" in build.not_landed[good.id]


def test_two_tasks_of_one_form_are_not_mixed(model, tmp_path):
    _, flow, tasks = model
    good, *_ = draw(tasks).values()
    build = build_model(flow, tuned_with(good, replace(good, id="twin")), tmp_path / "x.vmfb", 120)
    assert (build.missing, list(build.not_landed)) == ({}, ["twin"])


def test_a_rejected_flag_is_an_error_not_a_crash(model, tmp_path):
    _, flow, _ = model
    broken = replace(tuned_with(), model_flags=("--iree-no-such-flag",))
    assert build_model(flow, broken, tmp_path / "x.vmfb", 60).outcome.status == "compile_error"


def test_variants_are_two_levels_with_and_without_data_tiling_of_what_rewrites_leave():
    assert [a.name for a in variants(DEFAULT)] == ["default", "data-tiling", "O3", "O3+data-tiling"]
    rewritten = Alternative("channels-last", (), rewrites=Rewrites(("a",), "module {}"))
    found = variants(rewritten)
    assert found[0] == rewritten and found[1].name == "channels-last+data-tiling"
    assert len({a.key for a in found}) == len({a.flags for a in found}) == 4
    assert {a.rewrites for a in found} == {rewritten.rewrites}


@pytest.fixture
def result(model, tmp_path):
    """A hand-made result folder for `MODEL`, and the model's file."""
    _, _, tasks = model
    (source := tmp_path / "model.mlir").write_text(MODEL)
    tuned = tuned_with(*draw(tasks).values())
    (folder := tmp_path / "tuned").mkdir()
    write_tuned(tuned, folder / FILE_NAME)
    return source, folder, tuned


def test_a_result_is_applied_again_without_measuring(result, tmp_path):
    source, folder, tuned = result
    applied = compile_tuned(str(source), "cpu", folder, tmp_path / "out.vmfb")
    assert set(applied.landed) == {task.id for task in tuned.tasks}
    assert applied.missing == {}
    assert read_signature(tmp_path / "out.vmfb").function == "main"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.mlir", "out.vmfb", "tuned"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('felix.target = "cpu"', 'felix.target = "cuda:sm_80"', "was tuned for cuda:sm_80"),
        (f'felix.compiler = "{COMPILER}"', 'felix.compiler = "3.0.0"', "was tuned with iree-base-compiler 3.0.0"),
        ("felix.format = 1", "felix.format = 99", "another version of felix-mlir"),
        ("felix.format = 1", "felix.format = true", "damaged"),
        ("felix.form = ", "felix.shape = ", "damaged"),
        ("module attributes", "modul attributes", "damaged"),
    ],
)
def test_a_result_of_another_world_is_refused(result, tmp_path, old, new, message):
    source, folder, _ = result
    text = (folder / FILE_NAME).read_text()
    assert old in text
    (folder / FILE_NAME).write_text(text.replace(old, new))
    with pytest.raises(RequestError, match=message):
        compile_tuned(str(source), "cpu", folder, tmp_path / "out.vmfb")
    assert not (tmp_path / "out.vmfb").exists()


def test_a_result_of_another_model_is_refused(result, tmp_path):
    _, folder, _ = result
    (other := tmp_path / "other.mlir").write_text(matmul(64, 64, 64))
    with pytest.raises(RequestError, match="another model"):
        compile_tuned(str(other), "cpu", folder, tmp_path / "out.vmfb")


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.99])
def test_a_cut_off_or_missing_result_is_refused(result, tmp_path, part):
    source, folder, _ = result
    text = (folder / FILE_NAME).read_text()
    (folder / FILE_NAME).write_text(text[: int(part * len(text))])
    with pytest.raises(RequestError, match="damaged"):
        compile_tuned(str(source), "cpu", folder, tmp_path / "out.vmfb")
    with pytest.raises(RequestError, match="no tuning result"):
        compile_tuned(str(source), "cpu", tmp_path, tmp_path / "out.vmfb")

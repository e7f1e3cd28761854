"""Applying configurations to whole models: they land, or the build says which did not and why."""

from __future__ import annotations

import json

import numpy as np
import pytest
from configured import CPU, write_flow
from ops import conv2d_nchw, matmul

from felix_mlir.apply import ALTERNATIVES, DEFAULT, build_model, compile_tuned
from felix_mlir.errors import RequestError
from felix_mlir.importers import random_inputs
from felix_mlir.measure import Program, Runner, Status, Timing, save_arrays
from felix_mlir.measure.signature import read_signature
from felix_mlir.schedule import Configuration, LegalSpace, TileLevel
from felix_mlir.tasks import extract_tasks

MODEL = conv2d_nchw(30, 16, 32, 3, epilogue=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    flow = write_flow(MODEL, folder)
    return folder, flow, extract_tasks(flow, CPU, folder / "tasks")


def draw(tasks, seed=0):
    """A drawn configuration for every tunable task, by executable."""
    chosen = {}
    for task in tasks:
        if task.tunable:
            template = task.tunable.templates[0]
            (values,) = LegalSpace(template).draw(1, np.random.default_rng(seed))
            chosen |= dict.fromkeys(task.executables, template.configuration(values))
    return chosen


def test_without_configurations_the_result_is_iree_compiles_own(model, tmp_path):
    from felix_mlir.compiler.process import run_compiler, tool_path

    folder, flow, _ = model
    ours, theirs = tmp_path / "ours.vmfb", tmp_path / "theirs.vmfb"
    assert build_model(flow, DEFAULT, CPU, {}, ours, 120).outcome.ok
    command = [tool_path("iree-compile"), str(folder / "model.mlir"), *CPU.compile_flags, "-o", str(theirs)]
    assert run_compiler(command, 120).ok
    assert ours.read_bytes() == theirs.read_bytes()


def test_every_configuration_lands_and_the_model_computes_the_same(model, tmp_path):
    _, flow, tasks = model
    configurations = draw(tasks)
    plain, tuned = tmp_path / "plain.vmfb", tmp_path / "tuned.vmfb"
    assert build_model(flow, DEFAULT, CPU, {}, plain, 120).outcome.ok
    build = build_model(flow, DEFAULT, CPU, configurations, tuned, 120)
    assert build.outcome.ok
    assert dict(build.landing) == dict.fromkeys(configurations, "")
    assert plain.read_bytes() != tuned.read_bytes()
    inputs, expected = tmp_path / "in.npz", tmp_path / "out.npz"
    save_arrays(inputs, "arg", list(random_inputs(read_signature(plain).inputs, 0)))
    with Runner(CPU.device) as runner:
        assert runner.measure(Program(plain, inputs), Timing(0.001, 1), 60, expected).status is Status.OK
        program = Program(tuned, inputs, expected=expected, tolerance=1e-5)
        assert runner.measure(program, Timing(0.001, 1), 60).status is Status.OK


def test_what_does_not_land_is_named(model, tmp_path):
    _, flow, tasks = model
    task = next(task for task in tasks if task.tunable)
    (name, good), *_ = draw([task]).items()
    wrong_ops = Configuration(good.pipeline, good.ops[:1])
    build = build_model(flow, DEFAULT, CPU, {name: wrong_ops, "main_dispatch_99": good}, tmp_path / "x.vmfb", 120)
    assert build.outcome.ok
    assert "compute ops" in build.not_landed[name]
    assert "no such dispatch" in build.not_landed["main_dispatch_99"]


def test_a_distribution_the_compiler_ignores_is_noticed(model, tmp_path, monkeypatch):
    """The workgroup count is checked in generated code, so a lost distribution level cannot pass for landed."""
    from iree.compiler import ir

    from felix_mlir.compiler import driver

    _, flow, tasks = model
    task = next(t for t in tasks if t.tunable and t.tunable.dispatch.pipeline == "ConvTileAndDecomposeExpert")
    (name, good), *_ = draw([task]).items()
    root = task.tunable.dispatch.root_index
    other = {**good.ops[root], TileLevel.DISTRIBUTION: (*(min(e, 7) for e in task.iteration_space[:4]), 0, 0, 0)}
    lost = Configuration(good.pipeline, tuple(other if i == root else op for i, op in enumerate(good.ops)))

    def lose(function: ir.Operation, configuration: Configuration) -> None:
        original(function, lost)

    original = driver.write_configuration
    monkeypatch.setattr(driver, "write_configuration", lose)
    monkeypatch.setattr(driver, "read_configuration", lambda function: good)
    chosen, landing = tmp_path / "c.json", tmp_path / "l.json"
    chosen.write_text(json.dumps({name: good.to_json()}))
    status = driver.main([
        str(flow), "-o", str(tmp_path / "m.vmfb"), "--configurations", str(chosen), "--landing", str(landing),
        *CPU.compile_flags,
    ])  # fmt: skip
    assert status == 0
    assert "workgroups were generated" in json.loads(landing.read_text())[name]


def test_a_rejected_flag_is_an_error_not_a_crash(model, tmp_path):
    _, flow, _ = model
    build = build_model(flow, type(DEFAULT)("broken", ("--iree-no-such-flag",)), CPU, {}, tmp_path / "x.vmfb", 60)
    assert build.outcome.status == "compile_error"


def test_alternatives_are_the_four_layouts_with_and_without_data_tiling():
    assert len(ALTERNATIVES) == 8
    assert len({a.name for a in ALTERNATIVES}) == len({a.flags for a in ALTERNATIVES}) == 8
    assert DEFAULT.flags == ()


@pytest.fixture
def result(model, tmp_path):
    """A hand-made result folder for `MODEL`, and the model's file."""
    _, _, tasks = model
    (source := tmp_path / "model.mlir").write_text(MODEL)
    from importlib.metadata import version

    manifest = {
        "format": 1,
        "model": str(source),
        "target": "cpu",
        "versions": {"iree-base-compiler": version("iree-base-compiler")},
        "alternative": "default",
        "tasks": {
            task.id: {"configuration": configuration.to_json()}
            for task in tasks
            if task.tunable
            for configuration in draw([task]).values()
        },
    }
    (folder := tmp_path / "tuned").mkdir()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return source, folder, manifest


def test_a_result_is_applied_again_without_measuring(result, tmp_path):
    source, folder, manifest = result
    applied = compile_tuned(str(source), "cpu", folder, tmp_path / "out.vmfb")
    assert set(applied.landed) == set(manifest["tasks"])
    assert applied.missing == ()
    assert read_signature(tmp_path / "out.vmfb").function == "main"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.mlir", "out.vmfb", "tuned"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "cuda:sm_80"}, "was tuned for cuda:sm_80"),
        ({"versions": {"iree-base-compiler": "3.0.0"}}, "was tuned with iree-base-compiler 3.0.0"),
        ({"format": 99}, "another version of felix-mlir"),
    ],
)
def test_a_result_of_another_world_is_refused(result, tmp_path, change, message):
    source, folder, manifest = result
    (folder / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(RequestError, match=message):
        compile_tuned(str(source), "cpu", folder, tmp_path / "out.vmfb")
    assert not (tmp_path / "out.vmfb").exists()


def test_a_result_of_another_model_is_refused(result, tmp_path):
    _, folder, _ = result
    (other := tmp_path / "other.mlir").write_text(matmul(64, 64, 64))
    with pytest.raises(RequestError, match="another model"):
        compile_tuned(str(other), "cpu", folder, tmp_path / "out.vmfb")


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_damaged_or_missing_manifest_is_refused(result, tmp_path, content):
    source, folder, _ = result
    (folder / "manifest.json").write_text(content)
    with pytest.raises(RequestError, match="damaged"):
        compile_tuned(str(source), "cpu", folder, tmp_path / "out.vmfb")
    with pytest.raises(RequestError, match="no tuning result"):
        compile_tuned(str(source), "cpu", tmp_path, tmp_path / "out.vmfb")

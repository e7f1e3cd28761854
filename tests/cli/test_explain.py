"""`felix-mlir explain`: what it says of a finished run holds when computed another way."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ops import matmul

from felix_mlir.cli.explain import explain_folder, headline, show_explanation
from felix_mlir.cost import CostModel, OnlineModel, ScheduleEncoder, read_machine
from felix_mlir.cost import model as cost_model
from felix_mlir.errors import RequestError
from felix_mlir.options import TuneOptions
from felix_mlir.records import Store
from felix_mlir.report import SilentProgress
from felix_mlir.target import parse_target
from felix_mlir.tasks import extract_tasks
from felix_mlir.tuning import finish, run_tuning, structures, task_tuner
from felix_mlir.tuning import run as tuning_run
from felix_mlir.tuning.explain import TEMPERATURE, active_constraints, gradient

TRIALS = 6


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """The folder of a run whose one task ends with its fastest finalist, whatever that gained."""
    folder = tmp_path_factory.mktemp("explain")
    (model := folder / "model.mlir").write_text(matmul(50, 192, 136, epilogue=True))
    model_of_bound = CostModel.untrained()
    for part in ("of_operand", "of_loop", "of_stage", "of_dispatch"):
        # Inputs are clipped four scales out: at a scale of 1 the logarithm of a size of 16 sits on that corner.
        getattr(model_of_bound.network, part).scale.fill_(1.7)
    model_of_bound.save(folder / "weights.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost_model, "SHIPPED", folder / "weights.safetensors")
        patch.setattr(tuning_run, "variants", lambda structure: (structure,))
        patch.setattr(structures, "sketches_of", lambda *_: [])
        patch.setattr(task_tuner.TaskTuner, "_fastest", first_finalist)
        patch.setattr(finish, "_IN_MODEL_TOLERANCE", math.inf)
        options = TuneOptions(folder / "out", budget_s=None, trials=TRIALS, search="gradient")
        run_tuning(str(model), options, SilentProgress())
    return folder / "out"


def first_finalist(self, default, candidates, rest):
    return task_tuner.Choice(
        candidate=candidates[0], configuration=self._programs.configuration(candidates[0]), default_s=4e-4,
        chosen_s=3e-4, ratio=4 / 3, interval=(1.2, 1.4),
    )  # fmt: skip


@pytest.fixture
def copy(run, tmp_path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


@pytest.fixture(scope="module")
def explained(run):
    (task,) = [task for task in explain_folder(run, None)["tasks"] if task["default_us"] is not None]
    return task


@pytest.fixture(scope="module")
def tunable(run, explained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    tasks = extract_tasks(run / "work" / "variants" / "default" / "flow.mlirbc", parse_target("cpu"), folder)
    return next(task.tunable for task in tasks if task.id == explained["id"])


@pytest.fixture(scope="module")
def encoder(tunable) -> ScheduleEncoder:
    machine = read_machine(parse_target("cpu")).with_vectors_of(tunable.limits.native_vector_bytes)
    return ScheduleEncoder(tunable.templates[0], tunable.configured, machine)


@pytest.fixture(scope="module")
def adapted(run, explained, encoder):
    """The model as the run's records make it, all in one batch."""
    model = OnlineModel(CostModel.load(run / "cost_model.safetensors"), encoder.machine)
    with Store(run / "records.db") as store:
        found = [record for record in store.find(task=explained["id"]) if record.latency_s]
    points = torch.tensor([[r.knobs[knob.name] for knob in encoder.template.knobs] for r in found]).numpy()
    latencies = torch.tensor([4e-4 * r.latency_s / r.reference_s for r in found])
    model.observe(explained["id"], encoder.exact(points), torch.log(latencies))
    return model.adapted(explained["id"])


def knobs(explained, side="chosen") -> dict[str, int]:
    return {name: knob[side] for name, knob in explained["knobs"].items()}


def point(values):
    return torch.tensor([list(values.values())], dtype=torch.float64)


def test_predictions_are_those_of_the_model_adapted_to_the_records(explained, encoder, adapted, tunable):
    assert knobs(explained, "default") == tunable.templates[0].values_of(tunable.default)
    for side in ("chosen", "default"):
        inputs = encoder.exact(point(knobs(explained, side)).long().numpy())
        with torch.no_grad():
            expected = adapted.predict(inputs)
        schedule = explained[side]
        assert math.log(1e-6 * schedule["predicted_us"]) == pytest.approx(expected.mean.item(), abs=1e-3)
        assert schedule["deviation_us"] == pytest.approx(schedule["predicted_us"] * expected.deviation.item(), rel=1e-3)
        assert schedule["bound_us"] == pytest.approx(1e6 * math.exp(inputs.log_bound.item()))
        assert 0 < schedule["bound_share"] <= 1
        # With one stage, the bound is its slowest term, stretched by imbalance, and the launch.
        others = {name: seconds for name, seconds in schedule["terms"].items() if name != "launch"}
        assert schedule["bound_by"] in ("launch", max(others, key=others.__getitem__))
        assert 1e6 * (max(others.values()) + schedule["terms"]["launch"]) <= schedule["bound_us"] * 1.0001


def test_gradients_are_the_differences_of_the_prediction(explained, encoder, adapted, monkeypatch):
    shown = gradient(adapted, encoder, knobs(explained))
    assert any(shown.values())
    for name, slope in shown.items():
        assert slope == pytest.approx(explained["knobs"][name]["gradient"], abs=1e-3)
    # Relaxed features have corners at whole sizes and ratios, where no difference need be the slope: just off them.
    sizes = knobs(explained)
    (structure,) = encoder.structures_of(point(sizes).long().numpy())
    monkeypatch.setattr(encoder, "structures_of", lambda _: [structure])
    values = {name: size * math.exp(-1e-5 * math.sqrt(1 + i)) for i, (name, size) in enumerate(sizes.items())}
    # They bend within a fraction of a unit: differences need small steps, and those all digits.
    step, fine = 1e-7, adapted.double()

    def predicted(name, by):
        moved = {**values, name: values[name] * math.exp(by)}
        with torch.no_grad():
            return fine.predict(encoder.relaxed(structure, point(moved), TEMPERATURE)).mean.item()

    for name, slope in gradient(adapted, encoder, values).items():
        difference = (predicted(name, step) - predicted(name, -step)) / (2 * step)
        assert slope == pytest.approx(difference, abs=1e-5, rel=1e-3)


def test_active_constraints_are_broken_by_one_step_and_no_others_are(explained, tunable):
    template, values = tunable.templates[0], knobs(explained)
    assert explained["constraints"] == list(active_constraints(template, values))
    assert explained["constraints"]
    stopped = {(active["knob"], active["size"]) for active in explained["constraints"]}
    for active in explained["constraints"]:
        assert active["message"] in template.violations({**values, active["knob"]: active["size"]})
        assert (active["step"] == "larger") == (active["size"] > values[active["knob"]])
    for knob in template.knobs:
        index = knob.options.index(values[knob.name])
        for size in knob.options[max(0, index - 1) : index + 2]:
            legal = not template.violations({**values, knob.name: size})
            assert legal == ((knob.name, size) not in stopped)


def test_moves_are_legal_and_predicted_best(explained, encoder, adapted, tunable):
    template, values = tunable.templates[0], knobs(explained)

    def predicted(changed):
        with torch.no_grad():
            return adapted.predict(encoder.exact(point(changed).long().numpy())).mean.item()

    for move in explained["moves"]:
        changed = {**values, move["knob"]: move["size"]}
        assert not template.violations(changed)
        assert math.log(move["ratio"]) == pytest.approx(predicted(changed) - predicted(values), abs=1e-3)
    ratios = [move["ratio"] for move in explained["moves"]]
    assert ratios == sorted(ratios)


def test_what_the_default_lost_is_told_in_one_sentence(explained):
    assert explained["lost"]["ratio"] == pytest.approx(4 / 3)
    assert (explained["default_us"], explained["chosen_us"]) == (pytest.approx(400), pytest.approx(300))
    for difference in explained["lost"]["differences"]:
        assert difference["default"] != difference["chosen"]
    sentence = headline(explained)
    assert sentence.startswith(f"matmul {explained['id']}: 400 us -> 300 us (1.33x); ")
    assert "of the bound)" in sentence
    worse = [d["what"] for d in explained["lost"]["differences"] if d["default_is_worse"]]
    assert ("the default lost on" in sentence) == bool(worse)
    assert not worse or worse[0] in sentence


def test_an_explanation_is_plain_data_and_prints(run, explained, capsys):
    explanation = explain_folder(run, explained["id"])
    assert json.loads(json.dumps(explanation)) == explanation
    assert explanation["tasks"] == [explained]
    show_explanation(explanation)
    shown = capsys.readouterr().out
    assert headline(explained) in shown.splitlines()
    assert all(name in shown for name in explained["knobs"])
    assert all(active["message"] in shown for active in explained["constraints"])


def test_the_command_prints_json_and_refuses_in_one_line(run, explained, tmp_path):
    command = [sys.executable, "-m", "felix_mlir.cli", "explain"]
    done = subprocess.run([*command, str(run), "--task", explained["id"], "--json"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    (task,) = json.loads(done.stdout)["tasks"]
    assert task.keys() == explained.keys()
    assert (task["constraints"], knobs(task)) == (explained["constraints"], knobs(explained))
    done = subprocess.run([*command, str(tmp_path / "none")], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def change_task(directory, id_, **changes) -> None:
    path = directory / "report.json"
    report = json.loads(path.read_text())
    next(row for row in report["tasks"] if row["id"] == id_).update(changes)
    path.write_text(json.dumps(report))


def test_a_task_that_kept_the_default_is_explained_as_the_default(copy, explained, capsys):
    change_task(copy, explained["id"], knobs=None, reason="no candidate was faster beyond the noise")
    explanation = explain_folder(copy, explained["id"])
    (task,) = explanation["tasks"]
    assert task["keeps_default"]
    assert (task["lost"], task["chosen"]) == (None, task["default"])
    assert knobs(task) == knobs(explained, "default")
    assert task["default_us"] == task["chosen_us"] == pytest.approx(400)
    assert "400 us, keeps the default: no candidate was faster beyond the noise; bound by" in headline(task)
    show_explanation(explanation)
    assert "keeps the default" in capsys.readouterr().out


def test_a_task_that_was_not_tuned_has_its_reason(copy, explained):
    change_task(copy, explained["id"], knobs=None, default_us=None, tuned_us=None, speedup=None, reason="too small")
    (task,) = explain_folder(copy, explained["id"])["tasks"]
    assert headline(task) == f"matmul {explained['id']}: not tuned, too small"
    assert (task["chosen"], task["knobs"], task["moves"]) == (None, {}, [])


def test_without_records_the_model_of_the_folder_speaks(copy, explained):
    for file in copy.glob("records.db*"):
        file.unlink()
    report = json.loads((copy / "report.json").read_text())
    report["files"] = {}
    (copy / "report.json").write_text(json.dumps(report))
    (task,) = explain_folder(copy, explained["id"])["tasks"]
    # Nothing learned and nothing measured: the bound itself.
    assert task["chosen"]["predicted_us"] == pytest.approx(task["chosen"]["bound_us"], rel=1e-3)


def test_what_cannot_be_explained_is_a_request_error(copy, explained, tmp_path):
    def refused(expected, directory=copy, only=None):
        with pytest.raises(RequestError, match=expected):
            explain_folder(directory, only)

    refused("holds no tuning result", tmp_path / "nothing")
    refused(f"no task abc; it has .*{explained['id']}", only="abc")
    report, manifest = (copy / "report.json").read_text(), json.loads((copy / "manifest.json").read_text())
    for damaged in ("{", "[]", "{}", '{"tasks": [1]}'):
        (copy / "report.json").write_text(damaged)
        refused("is damaged")
    (copy / "report.json").unlink()
    refused("holds no finished result")
    (copy / "report.json").write_text(report)
    change_task(copy, explained["id"], knobs={"old_knob": 8})
    refused("another version of its template")
    (copy / "report.json").write_text(report)
    (copy / "manifest.json").write_text(json.dumps({**manifest, "host": "another machine"}))
    refused("tuned on another machine")
    (copy / "manifest.json").write_text("{")
    refused("is damaged")
    (copy / "manifest.json").write_text(json.dumps(manifest))
    shutil.rmtree(copy / "work")
    refused("run this on the folder felix-mlir tune wrote")
    assert not (copy / "work").exists()

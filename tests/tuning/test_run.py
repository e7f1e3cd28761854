"""Whole tuning runs: results, going on after an interruption, and faults that must not stop anything."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from ops import LAYER_NORM

import felix_mlir
from felix_mlir.apply import variants
from felix_mlir.compiler.process import BuildOutcome, BuildStatus
from felix_mlir.errors import RequestError
from felix_mlir.measure import Builder, BuildJob, Runner
from felix_mlir.options import TuneOptions
from felix_mlir.records import Store
from felix_mlir.report import SilentProgress
from felix_mlir.tuning import finish, model_stage, run, run_tuning, session, structures, task_tuner
from felix_mlir.tuning.budget import Budget
from felix_mlir.tuning.workspace import State, Workspace

# Whatever whole-model alternative wins, its one dispatch can be tuned.
MODEL = LAYER_NORM


@pytest.fixture
def model(tmp_path) -> Path:
    (path := tmp_path / "model.mlir").write_text(MODEL)
    return path


@pytest.fixture
def two_alternatives(monkeypatch):
    """Shortens runs that are about something else."""
    monkeypatch.setattr(run, "variants", lambda structure: variants(structure)[:2])
    monkeypatch.setattr(structures, "sketches_of", lambda *_: [])


def tune(model, out, trials, **options):
    return run_tuning(str(model), TuneOptions(out, budget_s=None, trials=trials, **options), SilentProgress())


def candidates(out: Path) -> list[tuple[str, str, str, str]]:
    with sqlite3.connect(out / "records.db") as database:
        rows = database.execute("SELECT task, template, knobs, status FROM records").fetchall()
    return [row for row in rows if not row[0].startswith("model-")]


@pytest.mark.usefixtures("two_alternatives")
def test_a_run_leaves_a_complete_result_and_a_second_one_measures_nothing(model, tmp_path):
    out = tmp_path / "tuned"
    report = tune(model, out, 12)
    assert report["speedup"] > 0.9
    assert report["largest_relative_error"] <= report["tolerance"] <= 1.3e-4
    assert report == json.loads((out / "report.json").read_text())
    for name in ("tuned.vmfb", "default.vmfb", "records.db", "manifest.json", "configurations.mlir"):
        assert (out / name).is_file(), name
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["target"] == "cpu"
    assert manifest["versions"]["iree-base-compiler"] == "3.13.0"
    assert len(candidates(out)) == 12 == report["trials"]
    (task,) = report["tasks"]
    assert sum(task["trials"].values()) == 12
    if task["knobs"]:
        assert task["interval"][0] > 1

    with sqlite3.connect(out / "records.db") as database:
        (rows,) = database.execute("SELECT count(*) FROM records").fetchone()
    again = tune(model, out, 12)
    with sqlite3.connect(out / "records.db") as database:
        assert database.execute("SELECT count(*) FROM records").fetchone() == (rows,)
    assert again == report

    more = tune(model, out, 18)
    found = candidates(out)
    assert len(found) == 18 == more["trials"]
    assert len(set(found)) == 18
    with sqlite3.connect(out / "records.db") as database:
        assert database.execute("SELECT count(*) FROM records").fetchone() == (rows + 6,)


@pytest.mark.usefixtures("two_alternatives")
def test_the_python_interface_returns_a_module_that_computes_what_torch_does(tmp_path):
    import torch
    from torch import nn

    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32)).eval()
    x = torch.randn(40, 64)
    result = felix_mlir.tune(module, (x,), trials=6, out=tmp_path / "out")
    with torch.no_grad():
        expected = module(x).numpy()
    actual = result.module(x.numpy())
    assert np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max()
    result.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "tuned.vmfb").is_file()
    assert not (tmp_path / "saved" / "work").exists()
    assert {task["kind"] for task in result.tasks} == {"matmul"}


class FaultyBuilder(Builder):
    """Spoils candidates as they are built: each kind of fault once."""

    faults: list[str] = []  # noqa: RUF012 (filled by the test, shared by the run)

    def build(self, jobs) -> list[BuildOutcome]:
        spoiled = [self._spoil(job) if "candidate-" in job.output.name else job for job in jobs]
        return super().build(spoiled)

    def _spoil(self, job: BuildJob) -> BuildJob:
        fault = self.faults.pop() if self.faults else ""
        source = job.output.with_suffix(".mlir")
        if fault == "compile_timeout":
            return BuildJob(("sh", "-c", "sleep 1000"), job.output)
        if fault == "compile_error":
            source.write_text("this is no MLIR")
        if fault == "wrong_result":
            source.write_text(
                source.read_text().replace("arith.addf", "arith.subf").replace("0.000000e+00", "1.000000e+00")
            )
        if fault in ("crash", "hang"):
            job.output.with_name(f"{job.output.name}.{fault}").touch()
        return job


@pytest.mark.usefixtures("two_alternatives")
def test_faulty_candidates_end_in_their_status_and_the_run_goes_on(model, tmp_path, monkeypatch):
    FaultyBuilder.faults = ["compile_timeout", "compile_error", "wrong_result", "crash", "hang"]
    worker = (sys.executable, str(Path(__file__).with_name("faulty_worker.py")), "--device", "local-task")
    monkeypatch.setattr(session, "Builder", FaultyBuilder)
    monkeypatch.setattr(session, "_CANDIDATE_TIMEOUT_S", 15.0)
    monkeypatch.setattr(session, "Runner", partial(Runner, command=worker))
    monkeypatch.setattr(task_tuner, "RUN_TIMEOUT_S", 6.0)
    report = tune(model, tmp_path / "out", 12)
    statuses = Counter(status for *_, status in candidates(tmp_path / "out"))
    # On a busy machine a sound candidate can be too unsteady to count.
    statuses["ok"] += statuses.pop("unstable", 0)
    assert statuses == {
        "compile_timeout": 1, "compile_error": 1, "wrong_result": 1, "crash": 1, "run_timeout": 1, "ok": 7,
    }  # fmt: skip
    (task,) = report["tasks"]
    trials = Counter(task["trials"])
    trials["ok"] += trials.pop("unstable", 0)
    assert trials == statuses
    with sqlite3.connect(tmp_path / "out" / "records.db") as database:
        failures = database.execute(
            "SELECT message, command FROM records WHERE status != 'ok' AND task NOT LIKE 'model-%'"
        ).fetchall()
    assert all(message and command for message, command in failures)
    reproduce = next(
        command for message, command in failures if command.startswith(sys.prefix) and "iree-compile" in command
    )
    assert subprocess.run(reproduce, shell=True, capture_output=True, check=False).returncode != 0


def start(model: Path, out: Path, trials: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "felix_mlir.cli", "tune", str(model), "--trials", str(trials), "--out", str(out)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for_candidates(process: subprocess.Popen[str], out: Path, number: int) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if len(candidates(out)) >= number:
                return
        except sqlite3.Error:
            pass
        time.sleep(0.05)
    raise AssertionError(f"the run recorded nothing: {process.communicate(timeout=10)}")


@pytest.mark.usefixtures("two_alternatives")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_run_loses_nothing_and_the_next_goes_on(model, tmp_path, end):
    out = tmp_path / "out"
    process = start(model, out, 1000)
    wait_for_candidates(process, out, 5)
    process.send_signal(end)
    _, stderr = process.communicate(timeout=60)
    if end == signal.SIGINT:
        assert process.returncode == 1
        assert "what was measured is kept" in stderr
        assert "Traceback" not in stderr
    before = candidates(out)
    assert len(before) >= 5
    with sqlite3.connect(out / "records.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    total = len(before) + 3
    report = tune(model, out, total)
    after = candidates(out)
    assert after[: len(before)] == before
    assert len(after) == len(set(after)) == total == report["trials"]


@pytest.mark.usefixtures("two_alternatives")
def test_a_model_where_nothing_gets_faster_gives_the_default_back(model, tmp_path):
    report = tune(model, tmp_path / "out", 0)
    assert report["verdict"] == "default kept" or report["alternative"] != "default"
    if report["verdict"] == "default kept":
        assert (tmp_path / "out/tuned.vmfb").read_bytes() == (tmp_path / "out/default.vmfb").read_bytes()
        assert any("default module" in note for note in report["notes"])


def test_a_folder_serves_one_model_and_one_run_at_a_time(model, tmp_path):
    out = tmp_path / "out"
    with Workspace(out), pytest.raises(RequestError, match="another run is using"):
        tune(model, out, 1)
    with Workspace(out) as workspace:
        workspace.state.source, workspace.state.target, workspace.state.model = "other.mlir", "cpu", "abc"
    with pytest.raises(RequestError, match=r"holds results of another model, other\.mlir"):
        tune(model, out, 1)


def test_a_damaged_state_is_a_request_error(tmp_path):
    with Workspace(tmp_path):
        pass
    (tmp_path / "work" / "state.json").write_text("{")
    with pytest.raises(RequestError, match="damaged"), Workspace(tmp_path):
        pass
    assert os.listdir(tmp_path) == ["work"]  # noqa: PTH208


def test_the_budget_counts_all_runs_of_a_folder():
    now = 100.0
    state = State(spent_s=30.0)
    budget = Budget(state, 50.0, None, clock=lambda: now)
    now = 115.0
    assert budget.elapsed_s == pytest.approx(45.0)
    assert budget.remaining_s == pytest.approx(5.0)
    assert not budget.exhausted
    now = 121.0
    assert budget.exhausted
    assert Budget(State(), None, None).remaining_s == float("inf")
    limited = Budget(State(), None, 10)
    limited.set_trials(10)
    assert limited.exhausted


@pytest.mark.usefixtures("two_alternatives")
def test_large_weights_lie_beside_the_module_and_the_report_says_how_to_run_the_pair(tmp_path, monkeypatch):
    import torch
    from torch import nn

    from felix_mlir.cli.bench import compare_modules
    from felix_mlir.importers import torch_import

    monkeypatch.setattr(torch_import, "EMBED_LIMIT_BYTES", 1000)
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(64, 96), nn.Softmax(-1)).eval(), torch.randn(40, 64)
    result = felix_mlir.tune(module, (x,), trials=3, out=tmp_path / "out")
    assert (tmp_path / "out" / "tuned.irpa").stat().st_size > 64 * 96 * 4
    assert (tmp_path / "out" / "tuned.vmfb").stat().st_size < 60_000
    assert any("--parameters=model=" in note for note in result.report["notes"])
    with torch.no_grad():
        assert np.allclose(result.module(x.numpy()), module(x).numpy(), atol=1e-6)
    assert compare_modules([tmp_path / "out"])["speedup"] > 0


@pytest.mark.usefixtures("two_alternatives")
def test_a_changed_model_is_another_model_though_its_name_is_the_same(model, tmp_path):
    tune(model, tmp_path / "out", 0)
    model.write_text(MODEL.replace("768", "384"))
    with pytest.raises(RequestError, match="results of another model"):
        tune(model, tmp_path / "out", 0)


@pytest.mark.usefixtures("two_alternatives")
def test_a_finished_run_is_not_redone_with_what_its_budget_left(model, tmp_path):
    options = TuneOptions(tmp_path / "out", budget_s=20.0, trials=2)
    first = run_tuning(str(model), options, SilentProgress())
    spent = json.loads((tmp_path / "out/work/state.json").read_text())["spent_s"]
    assert run_tuning(str(model), options, SilentProgress()) == first
    assert json.loads((tmp_path / "out/work/state.json").read_text())["spent_s"] == spent


@pytest.mark.usefixtures("two_alternatives")
@pytest.mark.parametrize("fault", ["crash", "hang", "compile", "landing"])
def test_a_tuned_model_that_fails_is_dropped_with_a_note(model, tmp_path, monkeypatch, fault):
    worker = (sys.executable, str(Path(__file__).with_name("faulty_worker.py")), "--device", "local-task")
    monkeypatch.setattr(session, "Runner", partial(Runner, command=worker))
    monkeypatch.setattr(model_stage, "_RUN_TIMEOUT_S", 10.0)
    original = finish.build_model

    def spoil(flow, tuned, output, timeout_s):
        build = original(flow, tuned, output, timeout_s)
        output.with_name(f"{output.name}.{fault}").touch()
        if fault == "compile":
            failed = replace(build.outcome, status=BuildStatus.COMPILE_ERROR, message="injected")
            return replace(build, outcome=failed)
        if fault == "landing":
            return replace(build, not_landed={task.id: "did not land" for task in tuned.tasks})
        return build

    monkeypatch.setattr(finish, "build_model", spoil)
    # Whatever the finalists measured, one of them is chosen, so that there is a tuned model to fail.
    monkeypatch.setattr(task_tuner.TaskTuner, "_fastest", choose_any)
    report = tune(model, tmp_path / "out", 4)
    assert (tmp_path / "out" / "tuned.vmfb").is_file()
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["tasks"] == {}
    expected = {"crash": "crash", "hang": "run_timeout", "compile": "injected", "landing": "did not land"}[fault]
    assert any(expected in note for note in report["notes"]), report["notes"]


def choose_any(self, default, candidates, rest):
    return task_tuner.Choice(
        candidate=candidates[0], configuration=self._programs.configuration(candidates[0]), default_s=1e-3,
        chosen_s=1e-3, ratio=1.0, interval=(1.0, 1.0),
    )  # fmt: skip


@pytest.mark.usefixtures("two_alternatives")
def test_records_of_other_templates_are_passed_over(model, tmp_path):
    report = tune(model, tmp_path / "out", 2)
    (task,) = report["tasks"]
    with Store(tmp_path / "out" / "records.db") as store:
        old = next(record for record in store.find(task=task["id"]))
        store.add(replace(old, knobs={"old_knob": 8}))
        store.add(replace(old, template="RetiredExpert"))
    assert tune(model, tmp_path / "out", 3)["trials"] == 3

"""Runs that measure nothing: what they choose by, what they refuse to use, and that all of it is in the module."""

from __future__ import annotations

import io
import json
import math
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops import matmul, strided_1x1
from rich.console import Console

from felix_mlir.apply import compile_tuned
from felix_mlir.cost import CostModel, OnlineModel, read_machine
from felix_mlir.errors import RequestError
from felix_mlir.gpu import find_ptxas, read_kernels
from felix_mlir.importers import random_inputs
from felix_mlir.measure import Program, Runner, Status, Timing, save_arrays
from felix_mlir.options import TuneOptions
from felix_mlir.records import Record, Store
from felix_mlir.report import SilentProgress
from felix_mlir.report.document import render
from felix_mlir.schedule import LegalSpace
from felix_mlir.search import SEARCHERS, UnsearchableError
from felix_mlir.target import device_names, measurable_target, parse_target
from felix_mlir.tuning import run_tuning
from felix_mlir.tuning.inspect import read_tasks
from felix_mlir.tuning.known import read_known
from felix_mlir.tuning.no_measure import divided
from felix_mlir.tuning.predictor import Predictor
from felix_mlir.tuning.static_check import Checked, StaticChecker

SHAPES = ((50, 96), (96, 72))
needs_no_gpu = pytest.mark.skipif(bool(device_names(parse_target("cuda:sm_80"))), reason="there is a CUDA device here")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    (path := tmp_path_factory.mktemp("model") / "model.mlir").write_text(matmul(50, 72, 96))
    return path


def choose(model: Path, out: Path, trials: int = 6, **options):
    return run_tuning(str(model), TuneOptions(out, trials=trials, measure=False, **options), SilentProgress())


@pytest.fixture(scope="module")
def chosen(model, tmp_path_factory) -> tuple[Path, dict]:
    """The folder of a run that knows nothing but what the model predicts, and its report."""
    out = tmp_path_factory.mktemp("chosen") / "out"
    return out, choose(model, out, 24)


def test_a_run_by_prediction_is_complete_and_claims_nothing(model, chosen, tmp_path):
    out, report = chosen
    assert report == json.loads((out / "report.json").read_text())
    assert report["verdict"] == "not measured"
    measured = ("default_ms", "tuned_ms", "speedup", "interval", "largest_relative_error", "tolerance")
    assert [report[name] for name in measured] == [None] * len(measured)
    (task,) = report["tasks"]
    assert [task[name] for name in ("default_us", "tuned_us", "speedup", "interval", "share")] == [None] * 5
    assert task["knobs"]
    assert task["unmeasured"]["basis"] == "prediction"
    assert task["unmeasured"]["chosen_us"] < task["unmeasured"]["default_us"]
    assert report["trials"] == 24
    with sqlite3.connect(out / "records.db") as database:
        assert database.execute("SELECT count(*) FROM records WHERE latency_s IS NOT NULL").fetchone() == (0,)
    for name in ("default.vmfb", "schedules.mlir", "tuning_spec.mlir"):
        assert (out / name).stat().st_size > 0
    applied = compile_tuned(str(model), "cpu", out, tmp_path / "again.vmfb")
    assert applied.landed == (task["id"],)
    assert (tmp_path / "again.vmfb").read_bytes() == (out / "tuned.vmfb").read_bytes()
    assert json.loads((out / "manifest.json").read_text())["tasks"][task["id"]]["knobs"] == task["knobs"]


def test_the_module_computes_what_the_default_does(chosen, tmp_path):
    out, _ = chosen
    save_arrays(tmp_path / "in.npz", "arg", list(random_inputs([(s, np.dtype("f4")) for s in SHAPES], 0)))
    with Runner("local-task") as runner:
        default = Program(out / "default.vmfb", tmp_path / "in.npz")
        runner.measure(default, Timing(0.01, 1), 60, tmp_path / "expected.npz")
        tuned = Program(out / "tuned.vmfb", tmp_path / "in.npz", expected=tmp_path / "expected.npz", tolerance=1e-5)
        assert runner.measure(tuned, Timing(0.01, 1), 60).status is Status.OK


def known(out: Path, chosen: tuple[Path, dict], ratios: list[float]) -> list[Record]:
    """Put records of another host into a new folder's store, each with other knobs than those chosen."""
    (task,) = chosen[1]["tasks"]
    sizes = [8, 16, 24, 32]
    records = [
        Record(
            task["id"], task["template"], {**task["knobs"], "distribution_d0": size}, "cpu", "3.13.0", "elsewhere",
            Status.OK, ratio * 1e-4, (ratio * 1e-4,), 1e-4,
        )
        for size, ratio in zip(sizes, ratios, strict=False)
    ]  # fmt: skip
    out.mkdir()
    with Store(out / "records.db") as store:
        store.add_new(records)
    return records


def test_what_was_measured_elsewhere_wins_over_predictions(model, chosen, tmp_path):
    records = known(tmp_path / "out", chosen, [0.9, 0.5, 1.3])
    report = choose(model, tmp_path / "out")
    (task,) = report["tasks"]
    assert task["knobs"] == records[1].knobs
    assert task["unmeasured"]["basis"] == "records of elsewhere"
    assert task["unmeasured"]["chosen_us"] == pytest.approx(50)
    assert report["trials"] == 0
    # A measured run in the same folder has everything still to do.
    assert json.loads((tmp_path / "out" / "work" / "state.json").read_text())["finished_budget"] is None


def test_where_the_default_was_fastest_it_stays(model, chosen, tmp_path):
    known(tmp_path / "out", chosen, [1.2, 0.995])
    report = choose(model, tmp_path / "out")
    (task,) = report["tasks"]
    assert task["knobs"] is None
    assert task["reason"] == "of 2 measured candidates none is faster"
    assert (tmp_path / "out" / "tuned.vmfb").read_bytes() == (tmp_path / "out" / "default.vmfb").read_bytes()
    assert any("tuned.vmfb is the default module" in note for note in report["notes"])


def test_a_schedule_that_is_not_sound_is_recorded_and_the_next_best_taken(model, chosen, tmp_path, monkeypatch):
    known(tmp_path / "out", chosen, [0.9, 0.5, 0.7])
    check = StaticChecker.check
    faults = [Checked(Status.INVALID, "12 bytes are spilled", "again"), Checked(Status.COMPILE_ERROR, "no", "again")]

    def spoiled(self, tunable, jobs, wanted):
        checked = check(self, tunable, jobs, wanted)
        return checked if wanted == [None] else [*faults, *checked[2:]]

    monkeypatch.setattr(StaticChecker, "check", spoiled)
    (task,) = choose(model, tmp_path / "out")["tasks"]
    assert task["knobs"]["distribution_d0"] == 8
    assert task["trials"] == {"invalid": 1, "compile_error": 1, "ok": 1}
    with Store(tmp_path / "out" / "records.db") as store:
        failed = [(r.status, r.message, r.knobs["distribution_d0"]) for r in store.find() if r.status is not Status.OK]
    assert failed == [(Status.INVALID, "12 bytes are spilled", 16), (Status.COMPILE_ERROR, "no", 24)]


def test_a_task_the_model_cannot_judge_is_left_to_the_records(model, chosen, tmp_path, monkeypatch):
    def unsearchable(problem, seed):
        raise UnsearchableError("it has no features")

    monkeypatch.setitem(SEARCHERS, "gradient", unsearchable)
    (task,) = choose(model, tmp_path / "nothing is known")["tasks"]
    assert (task["knobs"], task["reason"]) == (None, "the cost model cannot judge it: it has no features")
    known(tmp_path / "out", chosen, [0.5])
    assert choose(model, tmp_path / "out")["tasks"][0]["knobs"]


def test_code_that_is_not_what_was_configured_keeps_the_default(model, chosen, tmp_path, monkeypatch):
    known(tmp_path / "out", chosen, [0.5])
    monkeypatch.setattr(StaticChecker, "lost_in", lambda self, module, tasks, tuned: dict.fromkeys(tuned, "lost"))
    report = choose(model, tmp_path / "out")
    (task,) = report["tasks"]
    assert (task["knobs"], task["reason"]) == (None, "lost")
    assert (tmp_path / "out" / "tuned.vmfb").read_bytes() == (tmp_path / "out" / "default.vmfb").read_bytes()


@pytest.fixture(scope="module")
def on_cuda(tmp_path_factory) -> tuple[Path, Path, dict]:
    """A model in half precision, the folder of a run for a GPU, and its report."""
    folder = tmp_path_factory.mktemp("cuda")
    (model := folder / "model.mlir").write_text(matmul(64, 128, 96, element="f16"))
    return model, folder / "out", choose(model, folder / "out", 8, target="cuda:sm_80")


def test_a_schedule_for_a_gpu_is_in_the_code(on_cuda, tmp_path):
    model, out, report = on_cuda
    (task,) = report["tasks"]
    assert task["knobs"], task["reason"]
    assert set(task["trials"]) <= {"ok", "invalid"}
    chosen = task["unmeasured"]["chosen_kernel"]
    (kernel,) = read_kernels(out / "tuned.vmfb")
    assert math.prod(kernel.threads) == chosen["threads"]
    assert kernel.declared_threads == kernel.threads
    assert chosen["shared_bytes"] >= kernel.shared_bytes
    assert (chosen["registers"] is None) == (find_ptxas() is None)
    assert not chosen["spilled_bytes"]
    assert f"workgroup_size = [{kernel.threads[0]}, " in (out / "configurations.mlir").read_text()
    applied = compile_tuned(str(model), "cuda:sm_80", out, tmp_path / "again.vmfb")
    assert applied.landed == (task["id"],)
    shown = io.StringIO()
    Console(file=shown, width=200).print(render(report))
    assert str(chosen["shared_bytes"]) in shown.getvalue()


def test_predictions_know_how_many_workgroups_run_at_once(on_cuda, tmp_path):
    model, *_ = on_cuda
    (task,) = read_tasks(str(model), "cuda:sm_80", tmp_path)
    machine = read_machine(parse_target("cuda:sm_80"))
    predictor = Predictor(task.id, task.tunable, OnlineModel(CostModel.untrained(), machine))
    for template in task.tunable.templates:
        for values in LegalSpace(template).draw(4, np.random.default_rng(0)):
            (alone,) = predictor.seconds(template.name, [values])
            at_once = [predictor.seconds_with(template.name, values, number) for number in (1, 2, 32)]
            assert at_once == sorted(at_once, reverse=True)
            assert at_once[-1] == pytest.approx(alone)


def test_for_a_gpu_the_structure_is_what_estimates_say_and_is_replayed(tmp_path):
    """Compiled and checked without a device: a strided convolution becomes a product, and again when replayed."""
    (model := tmp_path / "model.mlir").write_text(strided_1x1(256, 512))
    out = tmp_path / "out"
    report = choose(model, out, 1, target="cuda:sm_80")
    (op,) = report["structures"]
    assert op["sketch"].startswith("gemm") and report["alternative"] != "default"
    assert (out / "rewrites.mlir").is_file() and any(task["kind"] == "matmul" for task in report["tasks"])
    assert not compile_tuned(str(model), "cuda:sm_80", out, tmp_path / "again.vmfb").missing
    assert (tmp_path / "again.vmfb").read_bytes() == (out / "tuned.vmfb").read_bytes()


@needs_no_gpu
def test_without_a_device_measuring_is_refused_in_one_line_and_choosing_is_not(model, tmp_path):
    command = [sys.executable, "-m", "felix_mlir.cli", "tune", str(model), "--target", "cuda:sm_80"]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert all(word in line for word in ("no cuda device", "felix-mlir bundle make", "--no-measure"))
    with pytest.raises(RequestError, match="no cuda device"):
        measurable_target("cuda:sm_90")


def test_newer_chips_run_code_for_the_newest_known_one():
    target = parse_target("cuda:sm_90")
    assert target.name == "cuda:sm_89"
    assert "--iree-cuda-target=sm_89" in target.compile_flags
    assert "cuda:sm_90 runs code for cuda:sm_89" in target.note
    assert replace(target, note="") == parse_target("cuda:sm_89")
    assert parse_target("cuda:sm_120a") == replace(target, note=target.note.replace("sm_90", "sm_120a"))
    for name in ("cuda:sm_70", "cuda:sm_88", "cuda:sm_", "cuda:sm_90x", "cuda"):
        with pytest.raises(RequestError, match="unknown target"):
            parse_target(name)


@given(total=st.integers(0, 500), weights=st.lists(st.none() | st.floats(1e-9, 1e3), max_size=8))
def test_candidates_are_divided_to_the_last_one_and_by_weight(total, weights):
    parts = divided(total, weights)
    assert sum(parts) == (total if weights else 0)
    assert min(parts, default=0) >= 0
    average = sum(filter(None, weights)) / max(1, sum(w is not None for w in weights)) or 1.0
    full = [average if weight is None else weight for weight in weights]
    assert all(abs(part - total * weight / sum(full)) <= 1.001 for part, weight in zip(parts, full, strict=True))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.floats(0.1, 10) | st.none()), max_size=12))
def test_known_candidates_are_ranked_beside_their_own_default(entries):
    ends = {host: (Status.OK, 1e-3 * scale, (), 1e-3 * scale) for host, scale in [("a", 1.0), ("b", 0.005)]}
    records = [
        replace(
            Record("task", "t", {"k": knob}, "cpu", "3.13.0", host, *ends[host]),
            **({"latency_s": ratio * ends[host][1]} if ratio else {"status": Status.CRASH, "latency_s": None}),
        )
        for host, knob, ratio in entries
    ]
    found = read_known(records, [_Template()])
    hosts = [host for host, _, ratio in entries if ratio]
    assert (found.host in hosts) == bool(hosts)
    assert all(hosts.count(host) <= hosts.count(found.host) for host in hosts)
    last = {knob: ratio for host, knob, ratio in entries if host == found.host and ratio}
    assert [pair[0] for pair in found.measured] == pytest.approx(sorted(last.values()))
    assert {c.values["k"]: ratio for ratio, c in found.measured} == pytest.approx(last)
    assert len(found.failed) == sum(not ratio for *_, ratio in entries)
    assert read_known([replace(record, template="retired") for record in records], [_Template()]).measured == ()


class _Template:
    name = "t"
    knobs = (type("Knob", (), {"name": "k"})(),)

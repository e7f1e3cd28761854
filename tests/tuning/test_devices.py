"""Runs on several devices, and on one whose driver has no profiler."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from configured import compile_checked
from ops import LAYER_NORM

from felix_mlir.measure import Runner
from felix_mlir.options import TuneOptions
from felix_mlir.report import SilentProgress
from felix_mlir.target import Target, device_names, measuring_devices, parse_target
from felix_mlir.tasks import extract_tasks
from felix_mlir.tuning import model_stage, run, run_tuning, session, structures


def test_a_device_has_a_worker_of_its_own_and_tasks_are_timed_alone_without_a_profiler(tmp_path, monkeypatch):
    (model := tmp_path / "model.mlir").write_text(LAYER_NORM)
    monkeypatch.setattr(run, "variants", lambda structure: (structure,))
    monkeypatch.setattr(structures, "sketches_of", lambda *_: [])
    # There is one processor; two workers on it stand for two devices.
    monkeypatch.setattr(session, "measuring_devices", lambda target: (target.device,) * 2)
    monkeypatch.setattr(Target, "has_profiler", False)

    def refuse(*_):
        raise AssertionError("the driver has no profiler")

    monkeypatch.setattr(model_stage, "profile_dispatches", refuse)
    used: list[Runner] = []
    measure = Runner.measure

    def counted(self, *arguments):
        used.append(self)
        return measure(self, *arguments)

    monkeypatch.setattr(Runner, "measure", counted)
    report = run_tuning(str(model), TuneOptions(tmp_path / "out", budget_s=None, trials=6), SilentProgress())
    (task,) = report["tasks"]
    assert sum(task["trials"].values()) == report["trials"] == 6
    assert task["trials"].get("ok", 0) > 1
    assert task["share"] == pytest.approx(1.0)
    assert len(set(used)) == 2


@pytest.mark.parametrize(
    ("names", "devices"),
    [
        ((), ("cuda",)),
        (("A100",), ("cuda",)),
        (("A100", "A100"), ("cuda://0", "cuda://1")),
        (("A100", "T4", "A100"), ("cuda://0", "cuda://2")),
        (("A100", "T4"), ("cuda",)),
    ],
)
def test_devices_of_the_first_ones_model_measure_together(names, devices, monkeypatch):
    monkeypatch.setattr("felix_mlir.target.device_names", lambda target: names)
    assert measuring_devices(parse_target("cuda:sm_80")) == devices


def test_the_processor_is_one_device():
    assert len(device_names(parse_target("cpu"))) == 1
    assert measuring_devices(parse_target("cpu")) == ("local-task",)


def test_an_invocation_waits_for_a_device_that_works_by_itself(tmp_path):
    """Timing a call is timing the device only if the call returns after the last dispatch has ended."""
    target = parse_target("cuda:sm_80")
    (model := tmp_path / "model.mlir").write_text(LAYER_NORM)
    flow = tmp_path / "flow.mlirbc"
    compile_checked(str(model), *target.compile_flags, "--compile-to=flow", "--emit-mlir-bytecode", "-o", str(flow))
    extract_tasks(flow, target, tmp_path / "tasks")
    (program,) = Path(tmp_path / "tasks").rglob("configured.mlir")
    output = tmp_path / "hal.mlir"
    repeats = "--iree-hal-benchmark-dispatch-repeat-count=5"
    start = "--compile-from=executable-configurations"
    compile_checked(str(program), *target.compile_flags, start, "--compile-to=hal", repeats, "-o", str(output))
    text = output.read_text()
    main = text[text.index("util.func public @main(") :].partition("\n  }\n")[0]
    submitted, waited, returned = (
        [match.start() for match in re.finditer(op, main)]
        for op in (r"hal\.device\.queue\.execute", r"hal\.fence\.await", r"util\.return")
    )
    assert len(returned) == 1 and submitted and max(submitted) < waited[-1] < returned[0]
    assert text.count("hal.command_buffer.dispatch<") == 5

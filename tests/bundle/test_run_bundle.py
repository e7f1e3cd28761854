"""Candidates that crash, hang and lie; runs that are killed, limited and repeated."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from bundle_parts import CPU, lines_of

from felix_mlir.bundle.measuring import machine as on_machine
from felix_mlir.importers import random_inputs
from felix_mlir.target import host_name


def statuses(lines: list[dict]) -> dict[int, str]:
    return {line["candidate"]: line["status"] for line in lines}


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_candidate_that_fails_is_a_line_and_the_others_go_on(tmp_path, machine, modules):
    names = ("right", "out of bounds", "right", "garbage", "wrong", "right")
    bundle = modules.bundle(tmp_path / "b.tar.xz", task=names)
    lines = machine.run_to(tmp_path / "results.jsonl", bundle)
    assert list(statuses(lines)) == list(range(len(names)))
    for line, name in zip(lines, names, strict=True):
        if name == "right":
            assert line["status"] in ("ok", "unstable")
            assert all(sample > 0 for sample in line["samples"])
            assert line["default_s"] > 0 and line["reference_s"] > 0
        else:
            assert line["samples"] == []
            assert line["command"].startswith("python run_bundle.py ")
    crash, load, lie = (lines[names.index(name)] for name in ("out of bounds", "garbage", "wrong"))
    assert (crash["status"], "SIGSEGV" in crash["message"]) == ("crash", True)
    assert (load["status"], lie["status"]) == ("crash", "wrong_result")
    assert lie["error"] > 1e-4 and "relative error" in lie["message"]
    # The default is timed again for the fifth candidate after it.
    assert lines[1]["default_s"] == lines[4]["default_s"] != lines[5]["default_s"]
    assert list(machine.temporary.iterdir()) == []


def test_a_run_that_was_killed_goes_on_where_it_ended(tmp_path, machine, modules):
    names = ("right", "right", "endless", "right")
    bundle = modules.bundle(tmp_path / "b.tar", changes={"timing.timeout_s": 2.0}, task=names)
    results = tmp_path / "results.jsonl"
    with machine.start(bundle, "-o", results) as process:
        while not results.exists() or len(results.read_bytes().splitlines()) < 3:
            time.sleep(0.02)
        (child,) = children(process.pid)
        process.kill()
    assert is_gone(child)
    first = results.read_bytes()
    assert statuses(lines_of(results)).keys() == {0, 1}
    results.write_bytes(first[:-30])  # As if the kill had come in the middle of the last line.
    done = machine.run(bundle, "-o", results)
    assert done.returncode == 0, done.stderr
    whole = [line for line in results.read_bytes().splitlines()[1:] if line.endswith(b"}")]
    lines = [json.loads(line) for line in whole]
    assert [line["candidate"] for line in lines] == [0, 1, 2, 3]
    assert statuses(lines)[2] == "run_timeout"
    assert statuses(lines)[3] in ("ok", "unstable")
    # Nothing is left to do.
    before = results.read_bytes()
    assert machine.run(bundle, "-o", results).stderr == f"{results}: 4 of 4 candidates\n"
    assert results.read_bytes() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_child_and_no_folder(tmp_path, machine, modules, number):
    before = set(machine.temporary.iterdir())
    bundle = modules.bundle(tmp_path / "b.tar", task=("right", "endless"))
    results = tmp_path / "results.jsonl"
    with machine.start(bundle, "-o", results) as process:
        while not results.exists() or len(results.read_bytes().splitlines()) < 2:
            time.sleep(0.02)
        (child,) = children(process.pid)
        os.kill(process.pid, number)
        assert process.wait(20) == 1
        assert process.stderr.read().splitlines()[-1].startswith("run_bundle: interrupted")
    assert is_gone(child)
    assert set(machine.temporary.iterdir()) == before


def test_a_time_limit_ends_a_run_and_blames_nobody(tmp_path, machine, modules):
    bundle = modules.bundle(tmp_path / "b.tar", task=("right", "endless", "right"))
    results = tmp_path / "results.jsonl"
    start = time.monotonic()
    done = machine.run(bundle, "-o", results, "--time-limit", 3)
    assert time.monotonic() - start < 20
    assert done.returncode == 0
    assert "of 3 candidates; the time limit was reached" in done.stderr.splitlines()[-1]
    assert statuses(lines_of(results)).keys() <= {0}


def test_the_best_of_every_task_come_first_and_one_whose_default_fails_is_left(tmp_path, machine, modules):
    tasks = {"a": ("right",) * 3, "bad": ("garbage", "right", "right"), "b": ("right",) * 3}
    bundle = modules.bundle(tmp_path / "b.tar", changes={"timing.group": 2}, **tasks)
    results = tmp_path / "results.jsonl"
    done = machine.run(bundle, "-o", results)
    assert done.returncode == 1
    assert "run_bundle: the default of matmul bad does not run here (crash: " in done.stderr
    order = [(line["task"], line["candidate"]) for line in lines_of(results)]
    assert order == [("a", 0), ("a", 1), ("bad", 0), ("b", 0), ("b", 1), ("a", 2), ("b", 2)]


def test_wrong_requests_are_answered_in_one_line(tmp_path, machine, plain, modules):
    results, thesis = tmp_path / "results.jsonl", tmp_path / "thesis.txt"
    machine.run_to(results, plain)
    thesis.write_text("This is my thesis.")
    other = modules.bundle(tmp_path / "other.tar", task=("right", "wrong"))
    header, *rest = results.read_text().splitlines(keepends=True)
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_text(json.dumps({**json.loads(header), "host": "a toaster"}) + "\n" + "".join(rest))
    cases = {
        "holds no results": (2, plain, thesis),
        "results of another bundle": (2, other, results),
        "results of another machine (a toaster)": (2, plain, elsewhere),
        "results of another device": (2, plain, results, "--device", "local-sync"),
        "cannot be used for results: No such": (2, plain, tmp_path / "none" / "results.jsonl"),
        "above 0": (2, plain, results, "--time-limit", "0"),
        "the device cuda cannot be found": (1, plain, tmp_path / "x.jsonl", "--device", "cuda"),
    }
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for reason, (status, bundle, output, *options) in cases.items():
        done = machine.run(bundle, "-o", output, *options)
        assert done.returncode == status
        assert reason in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_another_device_can_be_named_and_another_runtime_is_said(tmp_path, machine, modules):
    bundle = modules.bundle(tmp_path / "b.tar", changes={"compiler": "0.1"}, task=("right",))
    results = tmp_path / "results.jsonl"
    done = machine.run(bundle, "-o", results, "--device", "local-sync")
    assert done.stderr.startswith("note: the bundle was compiled with IREE 0.1, the runtime here is ")
    header = json.loads(results.read_text().splitlines()[0])
    assert (header["device"], header["compiler"]) == ("local-sync", "0.1")


def test_a_device_is_called_as_its_driver_calls_it(tmp_path, monkeypatch):
    (tmp_path / "iree").mkdir()
    (tmp_path / "iree" / "__init__.py").touch()
    (tmp_path / "iree" / "runtime.py").write_text(
        "class Driver:\n"
        "    def query_available_devices(self):\n"
        "        return [{'name': f'model {i}', 'path': f'GPU-{i}', 'device_id': i + 1} for i in range(2)]\n"
        "def get_driver(name):\n"
        "    return {'cuda': Driver()}[name]\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for device, name in {"cuda": 0, "cuda://0": 0, "cuda://1": 1, "cuda://GPU-1": 1}.items():
        assert on_machine.host_name(device) == f"model {name}"
    for device in ("cuda://2", "cuda://GPU-2", "vulkan"):
        with pytest.raises(on_machine.Stop, match=f"the device {device} cannot be found") as stopped:
            on_machine.host_name(device)
        assert stopped.value.status == 1


def test_the_machine_and_the_inputs_are_those_of_a_direct_run():
    assert on_machine.host_name("local-task") == host_name(CPU)
    kinds = ["float32", "float16", "float64", "bfloat16", "int8", "int64", "bool"]
    types = [((3, 5), kind) for kind in kinds] + [((1,), "int32")] * 8
    inputs = [{"shape": list(shape), "dtype": kind} for shape, kind in types]
    for seed in (0, 7):
        direct = random_inputs([(shape, np.dtype(kind)) for shape, kind in types], seed)
        for one, other in zip(on_machine.random_inputs(inputs, seed), direct, strict=True):
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()

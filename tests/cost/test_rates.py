from __future__ import annotations

import json
from dataclasses import replace

import pytest

from felix_mlir.cost import rates
from felix_mlir.cost.rates import ELEMENT_TYPES, OVERRIDE, MachineRates, read_rates
from felix_mlir.errors import RequestError, WorkError
from felix_mlir.target import host_name, parse_target

CPU = parse_target("cpu")
RATES = MachineRates(dict.fromkeys(ELEMENT_TYPES, 1e11), 4e11, 2e11, 5e10, 1e10, 2e10, 1e-6)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.delenv(OVERRIDE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "felix-mlir"


@pytest.fixture
def measuring(monkeypatch):
    """Instead of measuring, answer RATES; returns the targets that were measured."""
    measured = []
    monkeypatch.setattr(rates, "_measure", lambda target: measured.append(target) or RATES)
    return measured


@pytest.fixture
def probe(monkeypatch, tmp_path):
    """Let the child run another script."""

    def write(script):
        monkeypatch.setattr(rates, "_PROBE", tmp_path / "probe.py")
        (tmp_path / "probe.py").write_text(script)

    return write


def test_this_machine_is_measured_and_the_rates_are_kept(cache, monkeypatch):
    measured = read_rates(CPU)
    # Reading back checks that all are there, positive and finite.
    assert MachineRates.from_json(measured.to_json()) == measured
    levels = [measured.l1_bytes_s, measured.l2_bytes_s, measured.l3_bytes_s, measured.memory_bytes_s]
    assert levels == sorted(levels, reverse=True)
    assert measured.memory_all_bytes_s >= measured.memory_bytes_s
    # What torch does one by one, such as f16 and i32 on most processors, is not taken for what the machine can do.
    flops = measured.flops
    assert all(flops[narrow] >= flops["f32"] for narrow in ("f16", "bf16", "i8", "i32"))
    assert flops["f64"] >= flops["f32"] / 2

    assert len(list(cache.iterdir())) == 1  # No temporary file is left.
    monkeypatch.setattr(rates, "_measure", lambda target: pytest.fail("measured again"))
    assert read_rates(CPU) == measured


def test_another_machine_is_measured_anew(measuring):
    other = replace(CPU, cores=CPU.cores + 1)
    assert host_name(other) != host_name(CPU)
    for target in (CPU, other, other, CPU):
        read_rates(target)
    assert measuring == [CPU, other]


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b"[]", b'{"flops": {}}'])
def test_a_damaged_cache_is_measured_anew(cache, measuring, damage):
    read_rates(CPU)
    (file,) = cache.iterdir()
    file.write_bytes(damage)
    assert read_rates(CPU) == RATES
    assert len(measuring) == 2
    assert MachineRates.from_json(file.read_text()) == RATES


def test_a_cache_that_cannot_be_written_does_no_harm(cache, measuring):
    cache.parent.write_text("a file where the folder should be")
    assert read_rates(CPU) == RATES


def test_the_override_goes_before_the_cache(cache, measuring, monkeypatch, tmp_path):
    read_rates(CPU)
    mine = replace(RATES, launch_s=3e-6)
    (tmp_path / "mine.json").write_text(mine.to_json())
    monkeypatch.setenv(OVERRIDE, str(tmp_path / "mine.json"))
    assert read_rates(CPU) == mine


@pytest.mark.parametrize("text", [None, "{", json.dumps({"flops": {}})])
def test_an_override_that_holds_no_rates_is_refused(measuring, monkeypatch, tmp_path, text):
    file = tmp_path / "mine.json"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv(OVERRIDE, str(file))
    with pytest.raises(RequestError, match=str(file)) as raised:
        read_rates(CPU)
    assert "\n" not in str(raised.value)
    assert measuring == []


@pytest.mark.parametrize("value", [None, 0, -1.0, True, "fast", float("nan"), float("inf"), [1.0]])
@pytest.mark.parametrize("name", ["l1_bytes_s", "launch_s", "bf16"])
def test_rates_are_positive_and_finite(name, value):
    data = json.loads(RATES.to_json())
    table = data if name in data else data["flops"]
    table[name] = value
    with pytest.raises(ValueError, match=name):
        MachineRates.from_json(json.dumps(data))
    del table[name]
    with pytest.raises(ValueError, match=name):
        MachineRates.from_json(json.dumps(data))


def test_a_child_that_fails_is_a_failure_of_the_work(probe, cache):
    probe("import sys; sys.exit('the reason is here')")
    with pytest.raises(WorkError, match="exit status 1: the reason is here"):
        read_rates(CPU)
    assert not cache.exists()


def test_a_child_that_hangs_is_ended(probe, monkeypatch):
    monkeypatch.setattr(rates, "_PROBE_TIMEOUT_S", 0.2)
    probe("import time; time.sleep(600)")
    with pytest.raises(WorkError, match="no result after"):
        read_rates(CPU)


@pytest.mark.parametrize("answer", ["", "good morning", "[1]"])
def test_an_answer_that_is_none_is_a_failure_of_the_work(probe, answer):
    probe(f"print({answer!r})")
    with pytest.raises(WorkError, match="measuring what this machine can do"):
        read_rates(CPU)


def test_an_answer_without_all_rates_is_a_failure_of_the_work(probe, monkeypatch):
    monkeypatch.setattr(rates, "_launch_s", lambda target: 1e-6)
    probe("print('{\"flops\": {}}')")
    with pytest.raises(WorkError, match="l1_bytes_s"):
        read_rates(CPU)

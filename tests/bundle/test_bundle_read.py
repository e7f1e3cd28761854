"""From results to records."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest

from felix_mlir.bundle import read_results
from felix_mlir.errors import RequestError
from felix_mlir.measure import Status
from felix_mlir.records import Store

HEADER = {
    "format": 1, "bundle": "b", "model": "m", "target": "cpu", "compiler": version("iree-base-compiler"),
    "runtime": "1", "device": "local-task", "host": "there",
}  # fmt: skip
LINE = {
    "task": "t", "candidate": 1, "template": "tile", "knobs": {"d0": 4}, "status": "ok", "samples": [2.0, 3.0, 4.0],
    "default_s": 6.0, "reference_s": 4.0, "error": 0.0, "message": "", "command": "", "created": "now",
}  # fmt: skip


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "records.db") as store:
        yield store


@pytest.fixture
def results(tmp_path):
    def write(*lines: dict | str, **header):
        texts = [line if isinstance(line, str) else json.dumps(line) for line in ({**HEADER, **header}, *lines)]
        (path := tmp_path / "results.jsonl").write_text("\n".join(texts) + "\n")
        return path

    return write


def test_a_record_says_all_there_is_and_drift_divides_out(results, store):
    path = results(LINE)
    assert read_results(path, store).added == 1
    (record,) = store.find()
    assert (record.task, record.template, dict(record.knobs)) == ("t", "tile", {"d0": 4})
    assert (record.target, record.compiler, record.host) == ("cpu", HEADER["compiler"], "there")
    assert (record.status, record.samples, record.created) == (Status.OK, (2.0, 3.0, 4.0), "now")
    # The machine took half as long again for the default as at first.
    assert (record.latency_s, record.reference_s) == (2.0, 4.0)


def test_reading_twice_adds_nothing_and_going_on_adds_the_rest(results, store):
    failed = {**LINE, "candidate": 2, "status": "crash", "samples": [], "message": "boom", "command": "run it"}
    read_results(results(LINE), store)
    again = read_results(results(LINE, failed), store)
    assert (again.added, again.known) == (1, 1)
    once_more = read_results(results(LINE, failed), store)
    assert (once_more.added, once_more.known) == (0, 2)
    record = store.find()[1]
    assert (record.status, record.latency_s, record.message, record.command) == (Status.CRASH, None, "boom", "run it")


def test_samples_that_differ_too_much_are_no_latency(results, store):
    read_results(results({**LINE, "status": "unstable"}), store)
    (record,) = store.find()
    assert (record.status, record.latency_s, record.samples) == (Status.UNSTABLE, None, ())


def test_a_default_that_no_template_can_express_is_no_record(results, store):
    imported = read_results(results({**LINE, "template": None, "knobs": {}}, LINE), store)
    assert (imported.added, imported.problems) == (1, ())


@pytest.mark.parametrize(
    "line",
    [
        json.dumps(LINE)[:40],
        "[1]",
        "7",
        *({**LINE, **change} for change in (
            {"status": "splendid"}, {"samples": 3}, {"samples": ["fast"]}, {"samples": [-1.0]}, {"default_s": 0.0},
            {"default_s": None}, {"knobs": [1]}, {"knobs": {"d0": 1.5}}, {"reference_s": "soon"},
        )),
        {key: value for key, value in LINE.items() if key != "knobs"},
    ],
)  # fmt: skip
def test_a_line_that_is_no_result_is_reported_and_the_rest_kept(results, store, line):
    path = results(line, LINE)
    imported = read_results(path, store)
    assert imported.added == 1
    (problem,) = imported.problems
    assert problem.startswith(f"{path}:2: not a whole result")


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"compiler": "1.0.0"}, "IREE 1.0.0"),
        ({"format": 2}, "format 2"),
        ({"target": "tpu"}, "unknown target"),
    ],
)
def test_results_of_another_compiler_format_or_target_are_refused(results, store, header, reason):
    with pytest.raises(RequestError, match=reason):
        read_results(results(LINE, **header), store)
    assert store.find() == []


def test_what_holds_no_results_is_refused(tmp_path, store):
    with pytest.raises(RequestError, match="cannot read"):
        read_results(tmp_path / "missing.jsonl", store)
    for content in (b"", b"This is my thesis.", b"[]", b"{}", b"\xff\xfe", json.dumps(LINE).encode()):
        (path := tmp_path / "results.jsonl").write_bytes(content)
        with pytest.raises(RequestError, match="holds no results"):
            read_results(path, store)

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from felix_mlir.errors import RequestError, WorkError
from felix_mlir.measure import Status
from felix_mlir.records import Record, Store
from felix_mlir.records import store as module

PLACE = {"target": "cpu", "compiler": "3.13.0", "host": "here"}
HERE = {"task": "task", **PLACE}

TEXT = st.text(max_size=12)
SECONDS = st.floats(1e-9, 1e9)
RECORDS = st.builds(
    Record,
    task=TEXT,
    template=TEXT,
    knobs=st.dictionaries(TEXT, st.integers(), max_size=3),
    target=TEXT,
    compiler=TEXT,
    host=TEXT,
    status=st.sampled_from(Status),
    latency_s=SECONDS,
    samples=st.lists(SECONDS, max_size=3).map(tuple),
    reference_s=st.none() | SECONDS,
    message=TEXT,
    command=TEXT,
    created=TEXT,
)


def record(latency_s=None, reference_s=None, **others):
    status = Status.CRASH if latency_s is None else Status.OK
    values = {
        "template": "a",
        "knobs": {},
        "status": status,
        "latency_s": latency_s,
        "reference_s": reference_s,
    }
    return Record(**{**HERE, **values, **others})


def test_what_was_added_is_there_after_a_new_start(path):
    records = [
        record(1.0, template="default"),
        record(samples=(), message="it crashed", command="run it"),
    ]
    with Store(path) as store:
        for one in records:
            store.add(one)
    with Store(path) as store:
        assert store.find() == records


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(RECORDS, max_size=4))
def test_every_record_comes_back_as_it_was(store, records):
    before = store.find()
    for one in records:
        store.add(one)
    assert store.find() == before + records


def test_find_filters_by_what_is_given(store):
    variants = {"task": "other", "target": "cuda", "compiler": "4.0.0", "host": "there"}
    records = [record(1.0), *(record(1.0, **{name: value}) for name, value in variants.items())]
    for one in records:
        store.add(one)
    assert store.find() == records
    assert store.find(**HERE) == records[:1]
    for name, value in variants.items():
        assert store.find(**{name: value}) == [one for one in records if getattr(one, name) == value]
    assert store.find(task="no such task") == []


@pytest.mark.parametrize("statement", ["DELETE FROM records", "UPDATE records SET latency_s = 0.1"])
def test_records_cannot_be_changed(store, path, statement):
    store.add(record(1.0))
    with (
        closing(sqlite3.connect(path)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        connection.execute(statement)


def test_the_file_says_what_it_is(store, path):
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (module.SCHEMA_VERSION,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_newer_schema_is_refused(store, path):
    store.add(record(1.0))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {module.SCHEMA_VERSION + 1}")
    with pytest.raises(RequestError, match="upgrade felix-mlir"):
        Store(path)


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_a_file_that_is_no_database_is_refused_and_kept(path, size):
    content = b"This is my thesis. " * size
    path.write_bytes(content)
    with pytest.raises(RequestError, match="move it away"):
        Store(path)
    assert path.read_bytes() == content


def test_the_database_of_another_program_is_refused(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
    with pytest.raises(RequestError, match="another program"):
        Store(path)


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_damaged_database_is_refused(path, part):
    with Store(path) as store:
        for i in range(300):
            store.add(record(1.0, message=f"{i} " * 50))
    content = bytearray(path.read_bytes())
    place = int(part * len(content))
    content[place : place + 9000] = b"\xff" * 9000
    path.write_bytes(content)
    with pytest.raises(RequestError, match="damaged"):
        Store(path)


def test_a_database_cut_off_is_refused(path):
    with Store(path) as store:
        for i in range(300):
            store.add(record(1.0, message=f"{i} " * 50))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(RequestError, match="damaged"):
        Store(path)


def test_a_place_where_no_file_can_be_is_refused(tmp_path):
    for path in (tmp_path / "missing" / "records.db", tmp_path):
        with pytest.raises(RequestError, match="cannot open"):
            Store(path)


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    with Store(path) as store:
        store.add(record(1.0))
        assert len(store.find()) == 1


def test_a_store_held_by_another_process_is_an_error_that_says_so(path, monkeypatch):
    monkeypatch.setattr(module, "BUSY_TIMEOUT_S", 0.1)
    with Store(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(WorkError, match="locked"):
            store.add(record(1.0))
        other.execute("ROLLBACK")
        store.add(record(1.0))
        assert len(store.find()) == 1


@settings(deadline=None)
@given(st.lists(RECORDS, max_size=5))
def test_export_and_import_give_the_same_records(tmp_path_factory, records):
    folder = tmp_path_factory.mktemp("round-trip")
    with Store(folder / "one.db") as one, Store(folder / "other.db") as other:
        for each in records:
            one.add(each)
        one.export_jsonl(folder / "records.jsonl")
        imported = other.import_jsonl(folder / "records.jsonl")
        assert (imported.added, imported.known, imported.problems) == (len(records), 0, ())
        assert other.find() == records
        again = other.import_jsonl(folder / "records.jsonl")
        assert (again.added, again.known) == (0, len(records))
        assert other.find() == records


@pytest.fixture
def exported(store, tmp_path):
    for latency in (1.0, 2.0, 3.0):
        store.add(record(latency, knobs={"m": int(latency)}))
    store.export_jsonl(tmp_path / "records.jsonl")
    return tmp_path / "records.jsonl"


@pytest.mark.parametrize("kept", [1, 40, -2])
def test_a_last_line_cut_off_is_reported_and_the_rest_kept(store, exported, tmp_path, kept):
    lines = exported.read_text().splitlines(keepends=True)
    exported.write_text("".join(lines[:2]) + lines[2][:kept])
    with Store(tmp_path / "other.db") as other:
        imported = other.import_jsonl(exported)
        assert (imported.added, len(imported.problems)) == (2, 1)
        assert imported.problems[0].startswith(f"{exported}:3: not a whole record")
        assert other.find() == store.find()[:2]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda values: [values],
        lambda values: {**values, "colour": "blue"},
        lambda values: {name: value for name, value in values.items() if name != "knobs"},
        lambda values: {**values, "status": "splendid"},
        lambda values: {**values, "samples": 1.0},
        lambda values: {**values, "samples": ["fast"]},
        lambda values: {**values, "knobs": {"m": 1.5}},
        lambda values: {**values, "knobs": 8},
        lambda values: {**values, "latency_s": -1.0},
    ],
)
def test_a_line_that_is_no_record_is_reported_and_the_rest_kept(exported, tmp_path, spoil):
    lines = exported.read_text().splitlines()
    lines[1] = json.dumps(spoil(json.loads(lines[1])))
    exported.write_text("\n".join(lines))
    with Store(tmp_path / "other.db") as other:
        imported = other.import_jsonl(exported)
        assert (imported.added, len(imported.problems)) == (2, 1)
        assert f"{exported}:2:" in imported.problems[0]
        assert [one.latency_s for one in other.find()] == [1.0, 3.0]


def test_bytes_that_are_no_text_are_reported(exported, tmp_path):
    exported.write_bytes(exported.read_bytes() + b"\xff\xfe\x00\n")
    with Store(tmp_path / "other.db") as other:
        assert len(other.import_jsonl(exported).problems) == 1


def test_a_file_that_is_not_there_cannot_be_imported(store, tmp_path):
    with pytest.raises(RequestError, match="cannot read"):
        store.import_jsonl(tmp_path / "missing.jsonl")

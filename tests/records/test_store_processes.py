from __future__ import annotations

import sqlite3
import time
from contextlib import closing

from felix_mlir.records import Store

WRITER = """
import sys
from pathlib import Path
from felix_mlir.measure import Status
from felix_mlir.records import Record, Store
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
while not path.with_name("go").exists():
    pass
with Store(path) as store:
    for i in range(count):
        store.add(Record(name, "a", {"i": i}, "cpu", "1", "here", Status.OK, 1.0, message="x" * 2000))
        print(i, flush=True)
"""


def test_writers_at_once_lose_nothing(path, start_python):
    names, count = ["one", "two", "three"], 60
    writers = [start_python(WRITER, path, name, count) for name in names]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    path.with_name("go").touch()  # All of them find no file, and create the schema at once.
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    with Store(path) as store:
        for name in names:
            assert [record.knobs["i"] for record in store.find(task=name)] == list(range(count))


def test_what_a_killed_writer_had_committed_is_there(path, start_python):
    path.with_name("go").touch()
    committed: dict[str, int] = {}
    for attempt in range(10):
        name = f"attempt {attempt}"
        writer = start_python(WRITER, path, name, 1_000_000)
        assert writer.stdout.readline() == "ready\n"
        if attempt:  # The first one may die while it creates the file.
            writer.stdout.readline()
        time.sleep(0.003 * attempt)
        writer.kill()
        committed[name] = len(writer.stdout.read().splitlines()) + bool(attempt)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        with Store(path) as store:
            for each, least in committed.items():
                found = [record.knobs["i"] for record in store.find(task=each)]
                assert found == list(range(len(found)))
                assert len(found) >= least
    assert sum(committed.values()) > 10

"""The append-only database of records: SQLite, safe against kill -9 and against two writers at once."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from felix_mlir.errors import RequestError, WorkError
from felix_mlir.records.record import FIELDS, Record, plain_knobs

SCHEMA_VERSION = 1
APPLICATION_ID = 0x464D4C52  # "FMLR": marks a database as a store of records.
BUSY_TIMEOUT_S = 30.0
BUSY_POLL_S = 0.01

_COLUMNS = ", ".join(FIELDS)
_INSERT = f"INSERT INTO records ({_COLUMNS}) VALUES ({', '.join('?' for _ in FIELDS)})"
_SCHEMA = (
    """
    CREATE TABLE records (
        id INTEGER PRIMARY KEY,
        task TEXT NOT NULL,
        template TEXT NOT NULL,
        knobs TEXT NOT NULL,
        target TEXT NOT NULL,
        compiler TEXT NOT NULL,
        host TEXT NOT NULL,
        status TEXT NOT NULL,
        latency_s REAL,
        samples TEXT NOT NULL,
        reference_s REAL,
        message TEXT NOT NULL,
        command TEXT NOT NULL,
        created TEXT NOT NULL
    )
    """,
    "CREATE INDEX records_by_candidate ON records (task, target, compiler, host, template, knobs)",
    "CREATE TRIGGER records_stay BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    "CREATE TRIGGER records_are_final BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


@dataclass(frozen=True)
class Imported:
    """What import_jsonl did: how many records were new, how many known, and a line on each unreadable one."""

    added: int
    known: int
    problems: tuple[str, ...]


class Store:
    """Records in the file `path`, created if it is not there; use it as a context manager, in one thread.

    A record is on disk when `add` returns, and nothing changes or removes it. Other processes may use the
    file at the same time. Opening raises RequestError for a file that is damaged, that is no store, or that a
    newer version has written; writing raises WorkError when it fails (disk full, or another process holds the
    file for too long).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # Without an isolation level, transactions begin and end where this file says so.
            self._connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        except sqlite3.Error as problem:
            raise RequestError(f"cannot open {path}: {problem}") from problem
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def add(self, record: Record) -> None:
        """Append `record` and commit."""
        self._insert([record])

    def add_new(self, records: Iterable[Record]) -> tuple[int, int]:
        """Append those of `records` that are not here yet and commit; returns how many were new, and how many known."""
        existing = set(self.find())
        new: list[Record] = []
        known = 0
        for record in records:
            if record in existing:
                known += 1
            else:
                new.append(record)
        self._insert(new)
        return len(new), known

    def find(
        self,
        *,
        task: str | None = None,
        target: str | None = None,
        compiler: str | None = None,
        host: str | None = None,
    ) -> list[Record]:
        """Return the records with these properties (None: any), oldest first."""
        return self._select(task=task, target=target, compiler=compiler, host=host)

    def export_jsonl(self, path: Path) -> None:
        """Write all records to `path`, one JSON object a line, oldest first; the file appears whole."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.writelines(record.to_json() + "\n" for record in self.find())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def import_jsonl(self, path: Path) -> Imported:
        """Append the records of `path`, as export_jsonl writes them, that this store does not have yet.

        A line that is not a whole record (the last one of a file cut off, say) is reported with its number,
        and the rest is kept. Raises RequestError if the file cannot be read.
        """
        records: list[Record] = []
        problems: list[str] = []
        try:
            lines = path.read_bytes().split(b"\n")
        except OSError as problem:
            raise RequestError(f"cannot read {path}: {problem.strerror}") from problem
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                records.append(Record.from_json(line.decode()))
            except ValueError as problem:
                problems.append(f"{path}:{number}: not a whole record, left out ({problem})")
        added, known = self.add_new(records)
        return Imported(added, known, tuple(problems))

    def _prepare(self) -> None:
        try:
            with self._transaction():
                self._check_schema()
            self._use_write_ahead_log()
            (state,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.OperationalError as problem:
            raise RequestError(f"cannot use {self._path} as a database: {problem}") from problem
        except sqlite3.DatabaseError as problem:
            state = str(problem)
        if state != "ok":
            raise RequestError(f"{self._path} is damaged or no database ({state}): move it away")

    def _check_schema(self) -> None:
        """Create the schema in an empty file; raise RequestError for somebody else's file or a future one."""
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (objects,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if objects == 0 and version == 0:
            for statement in _SCHEMA:
                self._connection.execute(statement)
        elif application != APPLICATION_ID:
            raise RequestError(f"{self._path} is the database of another program: name another file")
        elif version > SCHEMA_VERSION:
            raise RequestError(
                f"{self._path} has schema {version}, only {SCHEMA_VERSION} is known here: upgrade felix-mlir"
            )

    def _use_write_ahead_log(self) -> None:
        # This statement alone does not wait for a process that opens the file at the same time.
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(BUSY_POLL_S)

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # After some errors SQLite has ended it by itself.
                self._connection.execute("ROLLBACK")
            raise

    def _insert(self, records: Iterable[Record]) -> None:
        try:
            with self._transaction():
                self._connection.executemany(_INSERT, (_row(record) for record in records))
        except sqlite3.Error as problem:
            raise WorkError(f"cannot write to {self._path}: {problem}") from problem

    def _select(self, **properties: str | None) -> list[Record]:
        wanted = {column: value for column, value in properties.items() if value is not None}
        where = " AND ".join(f"{column} = ?" for column in wanted) or "1"
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM records WHERE {where} ORDER BY id", tuple(wanted.values())
        )
        return [_record(row) for row in rows]


def _canonical(knobs: Mapping[str, int]) -> str:
    return json.dumps(plain_knobs(knobs), sort_keys=True, separators=(",", ":"))


def _row(record: Record) -> tuple[Any, ...]:
    as_text = {"knobs": _canonical(record.knobs), "samples": json.dumps(record.samples)}
    return tuple(as_text.get(name, getattr(record, name)) for name in FIELDS)


def _record(row: tuple[Any, ...]) -> Record:
    values: dict[str, Any] = dict(zip(FIELDS, row, strict=True))
    return Record.from_values(
        {**values, "knobs": json.loads(values["knobs"]), "samples": json.loads(values["samples"])}
    )

"""The file of results: what was measured so far, a line each."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .child import Stop

RESULTS_FORMAT = 1


class Results:
    """A header that says what of and where, then a line for each candidate that ended.

    Only whole lines count. `done` has the task and the number of every candidate there is a line of. Raises Stop if
    the file cannot be written, or is there and holds something else than results of this bundle on this machine.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self._path = path
        self.done: set[tuple[str, int]] = set()
        try:
            if not path.exists() or not path.stat().st_size:
                self._begin(header)
            self._resume(path.read_bytes(), header)
        except OSError as problem:
            raise Stop(2, f"{path} cannot be used for results: {problem.strerror}") from problem

    def add(self, line: dict[str, Any]) -> None:
        """Append what became of a candidate; it is on disk when this returns."""
        with self._path.open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.done.add((line["task"], line["candidate"]))

    def _begin(self, header: dict[str, Any]) -> None:
        # Whole or not at all, so that what is there can always be told from another file.
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(header) + "\n")
        temporary.replace(self._path)

    def _resume(self, content: bytes, header: dict[str, Any]) -> None:
        first, *rest = (_parsed(line) for line in content.split(b"\n"))
        if first.keys() != header.keys():
            raise Stop(2, f"{self._path} is there and holds no results: name another file")
        for key, what in (("bundle", "bundle"), ("device", "device"), ("host", "machine")):
            if first[key] != header[key]:
                raise Stop(2, f"{self._path} holds results of another {what} ({first[key]}): name another file")
        self.done = {(line["task"], line["candidate"]) for line in rest if {"task", "candidate"} <= line.keys()}
        if not content.endswith(b"\n"):
            # A kill cut off the last line: what comes next must not become part of it.
            with self._path.open("ab") as file:
                file.write(b"\n")


def _parsed(line: bytes) -> dict[str, Any]:
    """Return the object in a line; an empty one if it is not whole."""
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        return {}

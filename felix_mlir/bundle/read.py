"""Taking the results of a bundle into the record store."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from felix_mlir.bundle.measuring.results import RESULTS_FORMAT
from felix_mlir.errors import RequestError
from felix_mlir.measure import Status, median
from felix_mlir.records import Imported, Record, Store
from felix_mlir.target import parse_target


def read_results(results: Path, store: Store) -> Imported:
    """Append what run_bundle.py measured, unless the store has it; the host is the machine that measured.

    A line that is not whole (the last one of a run that was killed, say) is reported and the rest is kept. Raises
    RequestError for a file that holds no results, or those of another compiler, format or target, and WorkError.
    """
    try:
        first, *lines = results.read_bytes().split(b"\n")
    except OSError as problem:
        raise RequestError(f"cannot read {results}: {problem.strerror}") from problem
    header = _header(first, results)
    records: list[Record] = []
    problems: list[str] = []
    for number, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        try:
            record = _record(json.loads(line), header)
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as problem:
            problems.append(f"{results}:{number}: not a whole result, left out ({problem!r})")
            continue
        if record is not None:
            records.append(record)
    added, known = store.add_new(records)
    return Imported(added, known, tuple(problems))


def _header(line: bytes, results: Path) -> dict[str, str]:
    """Return what holds for all results of a file, of the compiler and format that are here."""
    try:
        header = json.loads(line)
        format_, compiler = header["format"], header["compiler"]
        place = {"target": parse_target(header["target"]).name, "compiler": str(compiler), "host": str(header["host"])}
    except (ValueError, TypeError, KeyError) as problem:
        raise RequestError(f"{results} holds no results of run_bundle.py") from problem
    if format_ != RESULTS_FORMAT:
        raise RequestError(
            f"{results} has format {format_}, only {RESULTS_FORMAT} is known here: make the bundle again"
        )
    if compiler != version("iree-base-compiler"):
        raise RequestError(
            f"{results} was measured on modules of IREE {compiler}, this is {version('iree-base-compiler')}: "
            "make the bundle again"
        )
    return place


def _record(line: dict[str, Any], place: dict[str, str]) -> Record | None:
    """Return a result as a record, or None for a default that no template can express."""
    if line["template"] is None:
        return None
    status = Status(line["status"])
    samples = tuple(line["samples"]) if status is Status.OK else ()
    latency_s = median(samples) * line["reference_s"] / line["default_s"] if samples else None
    return Record(
        str(line["task"]), str(line["template"]), line["knobs"], place["target"], place["compiler"], place["host"],
        status, latency_s, samples, line["reference_s"], str(line["message"]), str(line["command"]),
        str(line["created"]),
    )  # fmt: skip

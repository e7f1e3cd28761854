"""Tables of measured candidates: one op each, as JSON lines in the format felix-replay-1.

Line 1 is a header, every further line a candidate. Tables of others may lack what is optional here (`knobs`, `host`,
`machine`); a compressed table ends in .gz.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from felix_mlir.errors import RequestError
from felix_mlir.measure.status import Status
from felix_mlir.schedule import TileLevel

FORMAT = "felix-replay-1"
Levels = Mapping[TileLevel, tuple[int, ...]]


@dataclass(frozen=True)
class Row:
    """One candidate: the root op's tile sizes by level, how it ended, and seconds per launch if it ran.

    `knobs` are the values of the template's knobs, None where whoever wrote the table did not know them.
    """

    template: str
    levels: Levels
    status: Status
    latency_s: float | None
    error: str = ""
    knobs: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Table:
    """Candidates of one op on one machine.

    `mlir` is a module with one @main. `kind` says whether the rows are every legal point of `lattice` (knob to
    values) or a sample of the legal points. `cpu` is what --iree-llvmcpu-target-cpu took, `host` names the processor,
    `machine` has MachineLimits by field. `default_s` is the latency of the compiler's own choice, `default_levels`.
    """

    name: str
    mlir: str
    target: str
    cpu: str
    cores: int
    compiler: str
    kind: Literal["lattice", "sample"]
    iteration_space: tuple[int, ...]
    flops: int
    default_levels: Levels
    default_s: float
    rows: tuple[Row, ...]
    lattice: Mapping[str, tuple[int, ...]] | None = None
    host: str = ""
    machine: Mapping[str, int] | None = None

    @property
    def best_s(self) -> float:
        """The lowest latency in the table, in seconds; infinite when every candidate failed."""
        return min((row.latency_s for row in self.rows if row.latency_s is not None), default=float("inf"))


def write_table(table: Table, path: Path) -> None:
    """Write a table so that a reader finds either the old file or the whole new one."""
    header: dict[str, Any] = {
        "format": FORMAT, "name": table.name, "mlir": table.mlir, "target": table.target, "cpu": table.cpu,
        "cores": table.cores, "compiler": table.compiler, "kind": table.kind,
        "iteration_space": list(table.iteration_space), "flops": table.flops,
        "default": {"levels": _plain(table.default_levels), "latency_s": table.default_s},
        "host": table.host,
    }  # fmt: skip
    if table.lattice is not None:
        header["lattice"] = {knob: list(values) for knob, values in table.lattice.items()}
    if table.machine is not None:
        header["machine"] = dict(table.machine)
    lines = [json.dumps(header), *(json.dumps(_row_to_json(row)) for row in table.rows)]
    text = ("\n".join(lines) + "\n").encode()
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    # No time stamp inside, so that equal tables are equal files.
    temporary.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    temporary.replace(path)


def read_table(path: Path) -> Table:
    """Read a table; raises RequestError, with the line's number, for a file that is not one."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError, gzip.BadGzipFile) as error:
        raise RequestError(f"cannot read the table {path}: {error}") from error
    numbered = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not numbered:
        raise RequestError(f"{path} is empty, not a table of the format {FORMAT}")
    number = 1
    try:
        header = json.loads(numbered[0][1])
        if header["format"] != FORMAT:
            raise RequestError(f"{path} is of the format {header['format']!r}, expected {FORMAT!r}")
        table = _table_from_json(header)
        rows: list[Row] = []
        for number, line in numbered[1:]:  # noqa: B007 (the message below names the line)
            rows.append(_row_from_json(json.loads(line)))
        return replace(table, rows=tuple(rows))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(f"{path}, line {number}: not a table of the format {FORMAT} ({error!r})") from error


def _row_to_json(row: Row) -> dict[str, Any]:
    data: dict[str, Any] = {"template": row.template, "levels": _plain(row.levels), "status": row.status.value}
    if row.latency_s is not None:
        data["latency_s"] = row.latency_s
    if row.status is not Status.OK:
        data["error"] = row.error
    if row.knobs is not None:
        data["knobs"] = dict(row.knobs)
    return data


def _row_from_json(data: Mapping[str, Any]) -> Row:
    status = Status(data["status"])
    latency_s = float(data["latency_s"]) if status is Status.OK else None
    if latency_s is not None and not 0 < latency_s < float("inf"):
        raise ValueError(f"a latency of {latency_s} s")
    knobs = {name: int(value) for name, value in data["knobs"].items()} if "knobs" in data else None
    return Row(data["template"], _levels(data["levels"]), status, latency_s, data.get("error", ""), knobs)


def _table_from_json(header: Mapping[str, Any]) -> Table:
    kind = header["kind"]
    if kind not in ("lattice", "sample"):
        raise ValueError(f"kind {kind!r} is neither lattice nor sample")
    lattice = header.get("lattice")
    if kind == "lattice" and lattice is None:
        raise ValueError("a lattice without its values")
    return Table(
        name=header["name"], mlir=header["mlir"], target=header["target"], cpu=header["cpu"],
        cores=int(header["cores"]), compiler=header["compiler"], kind=kind,
        iteration_space=tuple(header["iteration_space"]), flops=int(header["flops"]),
        default_levels=_levels(header["default"]["levels"]), default_s=float(header["default"]["latency_s"]),
        rows=(),
        lattice=None if lattice is None else {name: tuple(map(int, values)) for name, values in lattice.items()},
        host=header.get("host", ""), machine=header.get("machine"),
    )  # fmt: skip


def _plain(levels: Levels) -> dict[str, list[int]]:
    return {level.value: list(sizes) for level, sizes in levels.items()}


def _levels(data: Mapping[str, Any]) -> Levels:
    return {TileLevel(level): tuple(int(size) for size in sizes) for level, sizes in data.items()}

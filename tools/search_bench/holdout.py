"""The cost model that has never seen a table's op: the shipped one where that is so, else one trained without it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import felix_mlir
from felix_mlir.dataset import read_table
from felix_mlir.dataset.resolve import resolve
from felix_mlir.errors import RequestError
from felix_mlir.target import parse_target

if TYPE_CHECKING:
    from felix_mlir.cost import CostModel
    from felix_mlir.dataset.encode import EncodedTable

HOLDOUTS = ("op", "kind")
# What a trained model depends on besides its data.
_SOURCES = ("cost", "dataset", "features", "schedule", "symbolic")


@dataclass(frozen=True)
class TableIdentity:
    """Which op a table is of: `task` is the hash of its canonical IR, `kind` that of its root op."""

    path: Path
    digest: str
    task: str
    kind: str


@dataclass(frozen=True)
class Training:
    """A model to be trained on `tables` and written to `output`."""

    tables: tuple[Path, ...]
    output: Path
    folder: Path
    seed: int = 0


def plan(
    tables: Sequence[TableIdentity], holdouts: Sequence[str], shipped: frozenset[str],
    dataset: Callable[[], Sequence[TableIdentity]], cache: Path, folder: Path,
) -> tuple[dict[tuple[Path, str], Path | None], list[Training]]:  # fmt: skip
    """Choose a model for each table and holdout, None for the shipped one (trained on the tasks `shipped`).

    Also returns the trainings this takes, without those already in `cache`. `dataset` is asked only if need be.
    """
    models: dict[tuple[Path, str], Path | None] = {}
    trainings: dict[Path, Training] = {}
    for holdout in holdouts:
        for table in tables:
            if holdout == "op" and shipped and table.task not in shipped:
                models[table.path, holdout] = None
                continue
            kept = [
                other
                for other in dataset()
                if other.task != table.task and (holdout == "op" or other.kind != table.kind)
            ]
            if not kept:
                raise RequestError(f"nothing is left to train on without {table.kind} for {table.path}")
            output = cache / f"{_cache_key(kept)}.safetensors"
            models[table.path, holdout] = output
            if not output.exists():
                trainings[output] = Training(tuple(other.path for other in kept), output, folder)
    return models, list(trainings.values())


def _cache_key(tables: Sequence[TableIdentity]) -> str:
    key = [sorted((table.task, table.digest) for table in tables), version("felix-mlir"), _source_digest()]
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


@functools.cache
def _source_digest() -> str:
    package = Path(felix_mlir.__file__).parent
    files = sorted(path for name in _SOURCES for path in (package / name).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def measure_machine() -> None:
    """Have the machine's rates measured, which every model needs, before processes share its cores."""
    from felix_mlir.cost import read_machine

    read_machine(parse_target("cpu"))


def shipped_tasks() -> frozenset[str]:
    """Return the tasks the shipped model was trained on; none while none is shipped."""
    from felix_mlir.cost.model import SHIPPED, CostModel

    return CostModel.load().tasks if SHIPPED.exists() else frozenset()


def held_out_model(path: Path | None, task: str) -> CostModel:
    """Load a model, the shipped one for None; raises RequestError for one that was trained on `task`."""
    from felix_mlir.cost import CostModel

    model = CostModel.load() if path is None else CostModel.load(path)
    if task in model.tasks:
        raise RequestError(f"the cost model {path or 'that is shipped'} was trained on this op")
    return model


def untrained_model(seed: int) -> CostModel:
    from felix_mlir.cost import CostModel

    return CostModel.untrained(seed)


def train_model(training: Training) -> float:
    """Train and save one model; returns the seconds it took."""
    from felix_mlir.cost.training import train

    begun = time.perf_counter()
    model = train([_encoded(path, training.folder) for path in training.tables], training.seed)
    training.output.parent.mkdir(parents=True, exist_ok=True)
    temporary = training.output.with_name(f"{os.getpid()}-{training.output.name}")
    model.save(temporary)
    temporary.replace(training.output)
    return time.perf_counter() - begun


@functools.cache
def _encoded(path: Path, folder: Path) -> EncodedTable:
    from felix_mlir.dataset.encode import encode, table_machine

    table = read_table(path)
    return encode(resolve(table, folder / str(os.getpid()) / path.name), table_machine(table))

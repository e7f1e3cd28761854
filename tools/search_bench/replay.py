"""Replaying tables: every searcher on every table with every seed, spread over processes."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felix_mlir.dataset import read_table
from felix_mlir.dataset.resolve import resolve
from felix_mlir.errors import RequestError
from felix_mlir.search import SEARCHERS
from felix_mlir.search.tpe import load_optuna
from search_bench.holdout import (
    TableIdentity,
    held_out_model,
    measure_machine,
    plan,
    shipped_tasks,
    train_model,
    untrained_model,
)
from search_bench.metrics import Curve
from search_bench.pool import Pool, Rules, digest, load_pool, replay
from search_bench.words import in_words

if TYPE_CHECKING:
    from felix_mlir.cost import OnlineModel

_WITH_MODEL = ("gradient",)
_UNTRAINED = "-nopretrain"


@dataclass(frozen=True)
class Contestant:
    """A searcher as it is compared: `holdout` says without what its cost model was trained, "" for no such model."""

    label: str
    holdout: str

    @property
    def searcher(self) -> str:
        return self.label.removesuffix(_UNTRAINED)

    def __str__(self) -> str:
        return f"{self.label} ({self.holdout})" if self.holdout else self.label


@dataclass(frozen=True)
class TableFacts:
    """A table that is replayed: `unresolved` of its `rows` cannot be expressed here."""

    identity: TableIdentity
    name: str
    kind: str
    rows: int
    unresolved: int
    candidates: int
    best_s: float
    reachable_s: float
    default_s: float


@dataclass(frozen=True)
class Work:
    """One search: of a table, by a contestant, with a seed; `model` is None for the shipped one."""

    table: Path
    contestant: Contestant
    model: Path | None
    seed: int
    rules: Rules
    folder: Path


@dataclass
class Replays:
    """`curves` by table, contestant and seed; `models` by table and holdout, None for the shipped one.

    `failed` are the searches without a curve; `errors` has a line for each of them and for each table that could not
    be replayed at all.
    """

    tables: list[TableFacts] = field(default_factory=list)
    contestants: list[Contestant] = field(default_factory=list)
    curves: dict[tuple[Path, Contestant, int], Curve] = field(default_factory=dict)
    models: dict[tuple[Path, str], Path | None] = field(default_factory=dict)
    failed: list[tuple[Path, Contestant, int]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def contestants(labels: Sequence[str], holdouts: Sequence[str]) -> list[Contestant]:
    """Return who competes; a searcher with a pre-trained model once per holdout. Raises RequestError for a name."""
    found: list[Contestant] = []
    for label in labels:
        base = label.removesuffix(_UNTRAINED)
        if base not in SEARCHERS or (base != label and base not in _WITH_MODEL):
            raise RequestError(f"unknown searcher '{label}': choose from {', '.join(SEARCHERS)}, gradient{_UNTRAINED}")
        found += [Contestant(label, holdout) for holdout in (holdouts if label in _WITH_MODEL else [""])]
    if "tpe" in labels:
        load_optuna()
    return found


def run_replays(
    tables: Sequence[Path],
    competing: Sequence[Contestant],
    seeds: int,
    rules: Rules,
    *,
    dataset: Path,
    cache: Path,
    jobs: int,
    say: Callable[[str], None],
) -> Replays:
    """Replay tables that are known to be well formed in `jobs` processes, on which only seconds depend.

    Models are trained on the tables in the folder `dataset` as far as they are not in `cache`.
    """
    found = Replays(contestants=list(competing))
    if any(contestant.searcher in _WITH_MODEL for contestant in competing):
        measure_machine()
    say(f"compiling the ops of {len(tables)} tables")
    with tempfile.TemporaryDirectory(prefix="felix-bench-") as name, _workers(jobs) as run:
        folder = Path(name)
        for path, facts in zip(tables, run(_facts, [(path, folder) for path in tables]), strict=True):
            if isinstance(facts, TableFacts):
                found.tables.append(facts)
            else:
                found.errors.append(f"{path}: {facts}")
        holdouts = list(dict.fromkeys(contestant.holdout for contestant in competing if contestant.holdout))
        if holdouts and found.tables:
            from felix_mlir.dataset.training import table_paths

            members = functools.cache(lambda: list(run(_identity, [(p, folder) for p in table_paths(dataset)])))
            known = [facts.identity for facts in found.tables]
            found.models, trainings = plan(known, holdouts, shipped_tasks(), members, cache, folder)
            for done, seconds in enumerate(run(train_model, [(training,) for training in trainings]), start=1):
                say(f"trained {done} of {len(trainings)} models, in {seconds:.0f} s")
        _search_all(found, [(seed, rules, folder) for seed in range(seeds)], run, say)
    # Without the tables some search failed on: all means are over the same ones.
    failed = {table for table, _, _ in found.failed}
    found.tables = [facts for facts in found.tables if facts.identity.path not in failed]
    return found


def _search_all(
    found: Replays, variants: Sequence[tuple[int, Rules, Path]], run: _Map, say: Callable[[str], None]
) -> None:
    works = [
        Work(path, contestant, found.models.get((path, contestant.holdout)), *variant)
        for path in (facts.identity.path for facts in found.tables)
        for contestant in found.contestants
        for variant in variants
    ]
    say(f"{len(works)} searches of {len(found.tables)} tables")
    for done, (work, curve) in enumerate(zip(works, run(_search, [(work,) for work in works]), strict=True), start=1):
        if isinstance(curve, Curve):
            found.curves[work.table, work.contestant, work.seed] = curve
        else:
            found.failed.append((work.table, work.contestant, work.seed))
            found.errors.append(f"{work.table}, {work.contestant}, seed {work.seed}: {curve}")
        if done == len(works) or works[done].table != work.table:
            say(f"{done} of {len(works)}: {work.table.name}")


# Maps a function over tuples of its arguments; results come in order.
_Map = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterator[Any]]


@contextmanager
def _workers(jobs: int) -> Iterator[_Map]:
    """Yield a map over processes, or in this one for a single job."""
    if jobs == 1:
        _one_thread()
        yield lambda function, arguments: (function(*each) for each in arguments)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_one_thread) as pool:
        yield lambda function, arguments: pool.map(function, *zip(*arguments, strict=True)) if arguments else iter(())


def _one_thread() -> None:
    """Keep this process's torch to one thread: processes share the cores, and sums come out the same."""
    import torch

    torch.set_num_threads(1)


def _identity(path: Path, folder: Path) -> TableIdentity:
    task = resolve(read_table(path), _own(folder, path)).task
    return TableIdentity(path, digest(path), task.id, task.kind)


def _facts(path: Path, folder: Path) -> TableFacts | str:
    """Compile the op of a table; returns what the table is, or why it cannot be replayed."""
    try:
        pool = _pool(path, folder)
    except Exception as error:  # tables of others hold whole programs, which may fail in ways nobody foresaw
        return in_words(error)
    resolved, table = pool.resolved, pool.resolved.table
    return TableFacts(
        TableIdentity(path, digest(path), resolved.task.id, resolved.task.kind), table.name, table.kind,
        len(table.rows), sum(candidate is None for candidate in resolved.candidates), len(pool.outcomes),
        table.best_s, min(s for s in pool.outcomes.values() if s is not None), table.default_s,
    )  # fmt: skip


def _search(work: Work) -> Curve | str:
    """Run one search; returns why it failed where it did."""
    try:
        pool = _pool(work.table, work.folder)
        factory = SEARCHERS[work.contestant.searcher]
        # A tuning run reads its model once for all tasks, before any search begins.
        model = _cost_model(work, pool) if work.contestant.searcher in _WITH_MODEL else None
        return replay(pool, factory, work.seed, work.rules, model)
    except Exception as error:  # one searcher that fails on one table must not lose the others' results
        return in_words(error)


def _cost_model(work: Work, pool: Pool) -> OnlineModel:
    from felix_mlir.cost import OnlineModel
    from felix_mlir.dataset.encode import table_machine

    is_trained = bool(work.contestant.holdout)
    model = held_out_model(work.model, pool.resolved.task.id) if is_trained else untrained_model(work.seed)
    return OnlineModel(model, table_machine(pool.resolved.table))


@functools.lru_cache(maxsize=4)
def _pool(path: Path, folder: Path) -> Pool:
    return load_pool(path, _own(folder, path))


def _own(folder: Path, path: Path) -> Path:
    """A folder no other process and no other table uses."""
    return folder / str(os.getpid()) / f"{digest(path)}-{path.name}"

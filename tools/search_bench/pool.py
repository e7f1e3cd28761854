"""A recorded table as a task to search: candidates that are listed, and how each one ended."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from search_bench.metrics import Curve

if TYPE_CHECKING:
    from felix_mlir.cost import OnlineModel

from felix_mlir.dataset import Table, read_table
from felix_mlir.dataset.resolve import ResolvedTable, resolve
from felix_mlir.errors import RequestError
from felix_mlir.schedule.space import ListedSpace
from felix_mlir.search import Candidate, Observation, SearcherFactory, SearchProblem


@dataclass(frozen=True)
class Pool:
    """`outcomes` has seconds per launch by candidate key, None for a failure; `start` the compiler's own choice."""

    resolved: ResolvedTable
    spaces: tuple[ListedSpace, ...]
    outcomes: dict[object, float | None]
    start: tuple[Candidate, ...]
    slowest_s: float


@dataclass(frozen=True)
class Rules:
    """How a table is replayed: the first proposal alone, then rounds that add up to multiples of `batch`.

    A search ends after `measurements` once it is within 99 % of the best known, and in any case after `limit`.
    """

    batch: int = 8
    measurements: int = 64
    limit: int = 256
    start_default: bool = False


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def load_pool(path: Path, folder: Path) -> Pool:
    """Read a table and compile its op in `folder`; raises RequestError when nothing of it can be replayed."""
    table = read_table(path)
    resolved = resolve(table, folder)
    outcomes: dict[object, float | None] = {}
    listed: dict[str, list[Candidate]] = {template.name: [] for template in resolved.templates if template.knobs}
    for candidate, row in zip(resolved.candidates, table.rows, strict=True):
        if candidate is None or candidate.template not in listed:
            continue
        listed[candidate.template].append(candidate)
        # Of two timings of one candidate the better one counts, as it does for the best of the table.
        timings = [s for s in (outcomes.get(candidate.key), row.latency_s) if s is not None]
        outcomes[candidate.key] = min(timings, default=None)
    latencies = [latency for latency in outcomes.values() if latency is not None]
    if not latencies:
        raise RequestError(f"none of the {len(table.rows)} rows of table {table.name} ran and can be expressed here")
    spaces = tuple(
        ListedSpace(template, [candidate.values for candidate in listed[template.name]])
        for template in resolved.templates
        if listed.get(template.name)
    )
    start = tuple(candidate for candidate in _default(resolved) if candidate.key in outcomes)
    return Pool(resolved, spaces, outcomes, start, max(latencies))


def _default(resolved: ResolvedTable) -> list[Candidate]:
    """Return the compiler's own choice, as the table has it, where a template can express it."""
    table: Table = resolved.table
    tunable = resolved.tunable
    root = tunable.dispatch.root_index
    ops = tuple(table.default_levels if index == root else op for index, op in enumerate(tunable.default.ops))
    default = replace(tunable.default, ops=ops)
    found = ((template.name, template.values_of(default)) for template in resolved.templates)
    return [Candidate(name, values) for name, values in found if values is not None]


def replay(pool: Pool, factory: SearcherFactory, seed: int, rules: Rules, model: OnlineModel | None = None) -> Curve:
    """Let a searcher choose from the pool until it is done by the rules, or has no more to propose.

    `model` is for searchers that use one.
    """

    def cost_model() -> OnlineModel:
        assert model is not None, "this searcher was not expected to use a cost model"
        return model

    best_s = pool.resolved.table.best_s
    limit = min(rules.limit, len(pool.outcomes))
    start = pool.start if rules.start_default else ()
    tunable = pool.resolved.tunable
    problem = SearchProblem(
        pool.resolved.task.id, pool.spaces, tunable.configured, tunable.limits.native_vector_bytes, cost_model, start
    )
    latencies: list[float | None] = []
    times: list[float] = []
    begun = time.perf_counter()
    searcher = factory(problem, seed)
    spent_s = time.perf_counter() - begun
    size = 1
    while len(latencies) < limit:
        if len(latencies) >= rules.measurements and any(s is not None and s <= best_s / 0.99 for s in latencies):
            break
        begun = time.perf_counter()
        proposed = searcher.propose(min(size, limit - len(latencies)))
        spent_s += time.perf_counter() - begun
        if not proposed:
            break
        found = [pool.outcomes[candidate.key] for candidate in proposed]
        latencies += found
        times += [spent_s] * len(found)
        begun = time.perf_counter()
        searcher.observe([Observation(c, latency) for c, latency in zip(proposed, found, strict=True)])
        spent_s += time.perf_counter() - begun
        size = rules.batch - len(latencies) % rules.batch
    return Curve(tuple(latencies), tuple(times), best_s, pool.slowest_s, limit)

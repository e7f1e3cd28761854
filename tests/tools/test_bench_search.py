"""Comparing searchers on recorded tables: figures, replays, which model may be used, and what the command prints."""

from __future__ import annotations

import csv
import json
import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from ops import matmul

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import bench_search
from search_bench.holdout import TableIdentity, plan
from search_bench.metrics import Curve, Figure, figures, ratio, spread
from search_bench.plot import plot
from search_bench.pool import Rules, load_pool, replay
from search_bench.replay import contestants, run_replays
from search_bench.summary import summarise

from felix_mlir.dataset import Row, Table, write_table
from felix_mlir.dataset.op_task import op_task
from felix_mlir.errors import RequestError
from felix_mlir.measure.status import Status
from felix_mlir.schedule import LegalSpace
from felix_mlir.search import SEARCHERS, RandomSearcher, TpeSearcher
from felix_mlir.target import parse_target

SEARCHES = ["evolutionary", "random", "tpe"]
IDEAL = {"distribution_d0": 25, "distribution_d1": 48, "vector_d0": 4, "vector_d1": 16, "vector_d2": 8}


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Table:
    """300 candidates of a matmul with a smooth made-up latency, every tenth a failure, and the compiler's choice."""
    mlir = matmul(50, 96, 72)
    task = op_task(mlir, parse_target("cpu"), tmp_path_factory.mktemp("op"))
    template, default = task.tunable.templates[0], task.tunable.default
    root = template.dispatch.root_index
    drawn = LegalSpace(template).draw(300, np.random.default_rng(0))
    candidates = [template.values_of(default), *{tuple(values.items()): values for values in drawn}.values()]
    rows = []
    for number, values in enumerate(candidates):
        levels = template.configuration(values).ops[root]
        latency_s = 1e-3 * (1 + sum(abs(math.log2(values[name] / size)) for name, size in IDEAL.items()))
        if number % 10 == 5:
            rows.append(Row(template.name, levels, Status.COMPILE_ERROR, None, "made up"))
        else:
            rows.append(Row(template.name, levels, Status.OK, latency_s))
    return Table(
        name="matmul", mlir=mlir, target="cpu", cpu="host", cores=2, compiler="none", kind="sample",
        iteration_space=(50, 96, 72), flops=2 * 50 * 96 * 72, default_levels=default.ops[root], default_s=5e-3,
        rows=tuple(rows),
    )  # fmt: skip


@pytest.fixture(scope="module")
def path(table, tmp_path_factory) -> Path:
    write_table(table, path := tmp_path_factory.mktemp("tables") / "matmul.jsonl")
    return path


@pytest.fixture(scope="module")
def pool(path, tmp_path_factory):
    return load_pool(path, tmp_path_factory.mktemp("pool"))


def curve(*latencies, limit=8):
    return Curve(latencies, tuple(0.5 * n for n in range(len(latencies))), best_s=1.0, slowest_s=20.0, limit=limit)


def test_a_failure_costs_a_measurement_and_a_close_latency_reaches():
    found = curve(None, 4.0, None, 1.1, 1.05, 1.0)
    assert [found.measurements_to(percent) for percent in (90, 95, 99)] == [4, 5, 6]
    assert [found.percent_after(n) for n in (1, 2, 3, 4, 64)] == [5, 25, 25, pytest.approx(100 / 1.1), 100]


def test_seconds_are_those_of_the_search_and_of_the_measurements():
    found = figures(curve(None, 4.0, None, 1.1, 1.05, 1.0), seconds_per_measurement=2.0)
    assert found["seconds_to_90"] == Figure(1.5 + 4 * 2.0)
    assert found["measurements_to_90"] == Figure(4)


def test_a_search_that_does_not_get_there_is_a_lower_bound():
    found = figures(curve(3.0, 2.0, limit=8), seconds_per_measurement=1.0)
    assert found["measurements_to_95"] == Figure(8, censored=True)
    assert found["seconds_to_95"] == Figure(0.5 + 8, censored=True)
    assert found["percent_after_64"] == Figure(50)


def test_means_are_over_ops_then_seeds_and_the_spread_is_over_seeds():
    by_seed = {0: [Figure(2), Figure(8)], 1: [Figure(4), Figure(64, censored=True)]}
    found = spread(by_seed)
    assert (found.mean, found.low, found.high) == pytest.approx((8, 4, 16))
    assert (found.censored, found.runs) == (1, 4)
    found = ratio(by_seed, {0: [Figure(4), Figure(4)], 1: [Figure(4), Figure(4)]})
    assert (found.mean, found.low, found.high) == pytest.approx((2, 1, 4))


@pytest.mark.parametrize("name", SEARCHES)
def test_a_replay_starts_alone_goes_on_in_batches_and_ends_by_the_rules(name, pool):
    rules = Rules(batch=8, measurements=40, limit=100)
    found = replay(pool, SEARCHERS[name], 0, rules)
    # Proposals of one round were asked for at the same time.
    rounds = [found.search_s.count(seconds) for seconds in dict.fromkeys(found.search_s)]
    assert rounds[:2] == [1, 7]
    assert set(rounds[2:-1]) <= {8}
    done = found.measurements_to(99)
    assert len(found.latencies_s) == (100 if done is None else max(40, math.ceil(done / 8) * 8))
    assert found == replace(replay(pool, SEARCHERS[name], 0, rules), search_s=found.search_s)


def test_a_pool_is_exhausted_at_its_size(pool):
    found = replay(pool, RandomSearcher, 0, Rules(measurements=10_000, limit=10_000))
    assert found.limit == len(pool.outcomes)
    assert 0.9 * found.limit < len(found.latencies_s) <= found.limit
    assert sum(latency is None for latency in found.latencies_s) > 20


def test_the_default_comes_first_only_where_asked_for(pool):
    (start,) = pool.start
    first = replay(pool, RandomSearcher, 3, Rules(measurements=1, limit=1, start_default=True)).latencies_s
    assert first == (pool.outcomes[start.key],)
    assert replay(pool, RandomSearcher, 3, Rules(measurements=1, limit=1)).latencies_s != first


def test_tpe_gets_there_sooner_than_chance(pool):
    rules = Rules(measurements=64, limit=300)
    reached = {
        searcher: [figures(replay(pool, searcher, seed, rules), 1.0)["measurements_to_95"].value for seed in range(5)]
        for searcher in (TpeSearcher, RandomSearcher)
    }
    assert math.prod(reached[TpeSearcher]) < math.prod(reached[RandomSearcher])


def test_results_do_not_depend_on_the_number_of_processes(path, tmp_path):
    run = partial(
        run_replays, [path], contestants(["random", "evolutionary"], ["op"]), 2, Rules(measurements=24, limit=24),
        dataset=tmp_path, cache=tmp_path, say=lambda text: None,
    )  # fmt: skip
    one, two = (run(jobs=jobs) for jobs in (1, 2))
    assert not one.errors
    assert len(one.curves) == 4
    assert {k: c.latencies_s for k, c in one.curves.items()} == {k: c.latencies_s for k, c in two.curves.items()}


def test_the_model_has_not_seen_the_op_or_not_its_kind(tmp_path):
    a, b, c = (
        TableIdentity(tmp_path / name, name, name, kind)
        for name, kind in (("a", "conv"), ("b", "conv"), ("c", "matmul"))
    )
    other = TableIdentity(tmp_path / "other", "other", "other", "matmul")
    decide = partial(plan, dataset=lambda: [a, b, c], cache=tmp_path, folder=tmp_path)
    shipped = frozenset("abc")

    models, trainings = decide([a, other], ["op", "kind"], shipped)
    assert models[other.path, "op"] is None
    kept = {training.output: set(training.tables) for training in trainings}
    assert kept[models[a.path, "op"]] == {b.path, c.path}
    assert kept[models[a.path, "kind"]] == {c.path}
    assert kept[models[other.path, "kind"]] == {a.path, b.path}

    models[a.path, "op"].touch()
    assert models[a.path, "op"] not in {training.output for training in decide([a], ["op", "kind"], shipped)[1]}
    assert decide([other], ["op"], frozenset())[0][other.path, "op"] is not None
    with pytest.raises(RequestError, match="nothing is left"):
        plan([c], ["kind"], shipped, lambda: [c], tmp_path, tmp_path)


def test_the_shipped_model_takes_no_data(tmp_path):
    table = TableIdentity(tmp_path, "new", "new", "conv")
    models, trainings = plan([table], ["op"], frozenset({"old"}), pytest.fail, tmp_path, tmp_path)
    assert models == {(tmp_path, "op"): None}
    assert trainings == []


def test_tables_of_others_never_stop_the_rest(table, path, tmp_path, capsys):
    strange = replace(
        table, name="strange", rows=(*table.rows[:40], replace(table.rows[0], template="SomethingElse", latency_s=1e-9))
    )
    broken = replace(table, name="broken", mlir="func.func @main() { return }")
    failing = replace(table, name="failing", rows=tuple(row for row in table.rows if row.status is not Status.OK))
    files = [tmp_path / f"{name}.jsonl" for name in ("strange", "broken", "failing")]
    for each, file in zip((strange, broken, failing), files, strict=True):
        write_table(each, file)
    out = tmp_path / "out" / "result.json"
    options = ["--searchers", "random,evolutionary", "--seeds", "2", "--json", str(out), "--jobs", "1", "--limit", "64"]
    assert bench_search.main(["replay", "--tables", *map(str, files), str(path), *options]) == 1

    captured = capsys.readouterr()
    assert "1 of 41 rows cannot be expressed" in captured.out
    assert "the best known, 1e-06 ms, is one of them" in captured.out
    assert captured.err.count("error:") == 2
    document = json.loads(out.read_text())
    assert [entry["op"] for entry in document["tables"]] == ["strange", "matmul"]
    assert len(document["errors"]) == 2
    assert len(document["searches"]) == 2 * 2 * 2
    assert len(document["searches"][0]["latencies_s"]) >= 40
    with out.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert {row["measurements_to_95_censored"] for row in rows if row["op"] == "strange"} == {"true"}
    assert all(0 < float(row["percent_after_8"]) <= 100 for row in rows)


def test_wrong_requests_end_with_one_line(path, tmp_path, capsys):
    (malformed := tmp_path / "malformed.jsonl").write_text('{"format": "felix-replay-1"}\n')
    options = ["--json", str(tmp_path / "out.json"), "--jobs", "1"]
    assert bench_search.main(["replay", "--tables", str(malformed), "--searchers", "random", *options]) == 2
    assert "line 1" in capsys.readouterr().err
    assert bench_search.main(["replay", "--tables", str(path), "--searchers", "luck", *options]) == 2
    assert "unknown searcher 'luck'" in capsys.readouterr().err


def test_a_plot_is_drawn(path, tmp_path):
    pytest.importorskip("matplotlib")
    replays = run_replays(
        [path], contestants(["random", "evolutionary"], ["op"]), 2, Rules(measurements=16, limit=16),
        dataset=tmp_path, cache=tmp_path, jobs=1, say=lambda text: None,
    )  # fmt: skip
    plot(tmp_path / "out.png", summarise(replays, 0.35), 16)
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")

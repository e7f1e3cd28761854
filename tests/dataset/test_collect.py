"""Collecting tables, and training on them."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from felix_mlir.cost.fit import Schedule
from felix_mlir.dataset import read_table, training
from felix_mlir.dataset.collect import collect, lattice_of, legal_points, select_ops
from felix_mlir.dataset.ops import row_sums
from felix_mlir.errors import RequestError
from felix_mlir.measure.status import Status
from felix_mlir.report import SilentProgress
from felix_mlir.tuning.task_tuner import TaskTuner

OPS = {"small_row_sums": row_sums(16, 24)}


def run(folder, **options):
    defaults = {"points": 6, "search": "random", "lattice": False, "seed": 0}
    return collect(OPS, folder, **{**defaults, **options}, progress=SilentProgress())


def records(folder) -> int:
    with sqlite3.connect(folder / "records.db") as database:
        return database.execute("SELECT count(*) FROM records").fetchone()[0]


def test_a_collection_is_a_table_and_goes_on_where_it_was_left(tmp_path, monkeypatch):
    class Interrupted(Exception):
        pass

    run_round, calls = TaskTuner.run_round, []

    def interrupt(self, count):
        if calls:
            raise Interrupted
        calls.append(count)
        run_round(self, min(count, 3))

    monkeypatch.setattr(TaskTuner, "run_round", interrupt)
    with pytest.raises(Interrupted):
        run(tmp_path)
    measured = records(tmp_path)
    assert measured == 3
    monkeypatch.setattr(TaskTuner, "run_round", run_round)
    (path,) = run(tmp_path)
    table = read_table(path)
    assert table.name == "small_row_sums"
    assert table.iteration_space == (16, 24)
    assert table.default_s > 0
    assert 1 <= len(table.rows) <= 6
    assert all(row.knobs for row in table.rows)
    assert len({tuple(sorted(row.knobs.items())) for row in table.rows}) == len(table.rows)
    assert records(tmp_path) >= 6


def test_a_lattice_is_all_its_legal_points_around_the_default(tmp_path, tasks_of):
    tunable = tasks_of("matmul").root.tunable
    (template,) = tunable.templates
    default = template.values_of(tunable.default)
    lattice = lattice_of(template, default, 60)
    points = legal_points(lattice)
    assert 60 <= len(points) <= 400
    assert template.satisfied(points).all()
    # What the compiler chooses need not be legal: on some vector widths its inner tiles do not divide the outer ones.
    chosen = np.array([[default[knob.name] for knob in lattice.knobs]])
    assert (chosen.tolist()[0] in points.tolist()) == template.satisfied(chosen).all()
    for knob in lattice.knobs:
        ratios = np.diff(np.log(knob.options))
        assert (ratios > np.log(1.4)).all()
    (path,) = run(tmp_path, lattice=True, points=12)
    table = read_table(path)
    assert table.kind == "lattice"
    assert set(table.lattice) == set(table.rows[0].knobs)
    sizes = [tuple(row.knobs.values()) for row in table.rows]
    assert len(set(sizes)) == len(sizes) >= 10


def test_wrong_requests_say_what_there_is(tmp_path):
    with pytest.raises(RequestError, match="no suite other; there are main, variety"):
        select_ops("other", ["*"])
    with pytest.raises(RequestError, match="has no op nothing"):
        select_ops("main", ["conv*", "nothing"])
    assert set(select_ops("main", ["softmax*"])) == {"softmax_12_197_197"}
    with pytest.raises(RequestError, match="unknown searcher"):
        run(tmp_path, search="guess")
    with pytest.raises(RequestError, match="has no tables"):
        training.table_paths(tmp_path)


def test_training_says_where_the_weights_come_from_and_how_good_they_are(tmp_path, monkeypatch):
    folder = tmp_path / "tables"
    for name, shape in {"a": (16, 24), "b": (24, 40)}.items():
        collect(
            {name: row_sums(*shape)}, folder, points=8, search="random", lattice=False, seed=0,
            progress=SilentProgress(),
        )  # fmt: skip
    short = Schedule(5, 1e-3, 2, 8)
    monkeypatch.setattr(training, "train", lambda tables, seed, card=None: _train(tables, seed, card, short))
    model = training.train_on_tables(training.table_paths(folder), 0, 2, lambda line: None)
    tables = [read_table(path) for path in training.table_paths(folder)]
    assert model.card["ops"] == ["a", "b"]
    assert model.card["points"] == sum(row.status is Status.OK for table in tables for row in table.rows)
    assert len(model.tasks) == 2
    assert set(model.card["held_out"]) == {"factor", "rank_correlation", "first"}
    assert model.card["hosts"] == [tables[0].host]


def _train(tables, seed, card, schedule):
    from felix_mlir.cost.training import train

    return train(tables, seed, card, schedule)

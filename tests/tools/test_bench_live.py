"""Live comparisons: the ops are what torch computes, and a run of few candidates fills every table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import bench_search
from search_bench import live_output
from search_bench.live import BASELINES, compile_op, run_live
from six_ops import SIX_OPS, Op

from felix_mlir.api import TunedModule
from felix_mlir.dataset import SUITES
from felix_mlir.measure import Status, Timing
from felix_mlir.options import TuneOptions
from felix_mlir.report import show
from felix_mlir.target import parse_target

QUICKEST = "matmul_100_768_512"
CPU = parse_target("cpu")


@pytest.mark.parametrize("name", SIX_OPS)
def test_torch_computes_what_the_op_does(name, tmp_path):
    op = SIX_OPS[name]
    arrays = op.inputs()
    (source := tmp_path / "op.mlir").write_text(op.mlir)
    found = TunedModule(compile_op(source, CPU))(*arrays)
    expected = op.eager(arrays)().numpy()
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() / np.abs(expected).max() < 1e-4


def test_the_cost_model_has_seen_none_of_the_ops():
    assert len(SIX_OPS) == 6
    assert not {op.mlir for op in SIX_OPS.values()} & {mlir for suite in SUITES.values() for mlir in suite.values()}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A short run of the quickest op, and one of an op that is no MLIR."""
    ops = {
        "nonsense": Op("func.func @main(", ((2, 2),), lambda x: lambda: x),
        QUICKEST: SIX_OPS[QUICKEST],
    }
    tuning = TuneOptions(tmp_path_factory.mktemp("live"), budget_s=None, trials=4)
    return run_live(ops, ["random"], 1, tuning, lambda text: None, Timing(0.05, 6))


def test_a_run_is_timed_beside_the_baselines(live):
    (result,) = live.ops
    assert result.op == QUICKEST
    assert list(result.measured) == [*BASELINES, "random/0"]
    assert {found.status for found in result.measured.values()} == {Status.OK}
    assert {len(found.samples) for found in result.measured.values()} == {6}
    (run,) = result.runs
    assert run.report["trials"] == 4
    assert 0 < run.report["search_s"] < run.report["spent_s"]
    assert 0 < run.search_share < 1


def test_a_run_says_what_its_search_took(live, capsys):
    show(live.ops[0].runs[0].report)
    assert "search, features and model took " in capsys.readouterr().out


def test_an_op_that_fails_does_not_lose_the_others(live):
    assert any(error.startswith("nonsense: random, seed 0: ") for error in live.errors)
    assert any(error.startswith("nonsense: iree-compile rejects") for error in live.errors)


def test_results_are_shown_and_written(live, tmp_path, capsys):
    live_output.write_json(tmp_path / "out.json", live, {"seeds": 1})
    document = json.loads((tmp_path / "out.json").read_text())
    assert [entry["program"] for entry in document["programs"]] == [*BASELINES, "random/0"]
    tuned = document["programs"][-1]
    assert tuned["agrees_with_torch"] and tuned["relative_error"] < 1e-4
    assert set(tuned["times_faster_than"]) == set(BASELINES)
    assert tuned["candidates"] == 4
    assert set(document["overall"]) == {*BASELINES, "random"}
    assert document["overall"]["default"]["default"]["mean"] == 1
    assert 0 < document["search_share"]["random"] < 1
    assert len(document["errors"]) == 2
    live_output.show(live)
    shown = capsys.readouterr().out
    assert "geometric mean over 1 ops" in shown
    assert "random/0" in shown


def test_wrong_requests_end_with_one_line(tmp_path, capsys):
    options = ["live", "--json", str(tmp_path / "out.json")]
    for wrong, words in (
        (["--searchers", "luck"], "unknown searcher 'luck'"),
        (["--ops", "relu*"], "no op is called 'relu*'"),
        (["--budget", "soon"], "'soon' is no duration"),
    ):
        assert bench_search.main([*options, *wrong]) == 2
        assert words in capsys.readouterr().err

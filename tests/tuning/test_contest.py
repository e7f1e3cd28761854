"""Structures tuned side by side: none that may win is given up, each op is decided by itself, mixes are built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix_mlir.apply import DEFAULT, compile_tuned, with_tasks
from felix_mlir.measure import Status
from felix_mlir.options import TuneOptions
from felix_mlir.report import SilentProgress
from felix_mlir.search import TaskProgress
from felix_mlir.sketches import Layout
from felix_mlir.target import parse_target
from felix_mlir.tasks import Task
from felix_mlir.tuning import run, run_tuning, structures, task_search
from felix_mlir.tuning.contest import Contender, Contest
from felix_mlir.tuning.finish import Finish
from felix_mlir.tuning.model_stage import Build, ModelStage

BUILD = Build(DEFAULT, Path("flow"), Path("vmfb"), with_tasks("", parse_target("cpu"), DEFAULT))


def task(id_: str, share: float) -> Task:
    return Task(id_, "matmul", (), (), 1, "f32", (1,), None, "not built in this test", share)


@st.composite
def contests(draw):
    """Two or three contenders for a few ops, with own and shared tasks, and how far each task's search has come."""
    ops = [f"op{number}" for number in range(draw(st.integers(1, 3)))]
    seconds = st.floats(1e-3, 1.0)
    made = []
    for number in range(draw(st.integers(2, 3))):
        op_seconds = {
            op: draw(st.dictionaries(st.sampled_from(["shared", f"{op}-{number}", f"{op}-more"]), seconds, min_size=1))
            for op in ops
        }  # fmt: skip
        ids = {"neither", *(id_ for of_op in op_seconds.values() for id_ in of_op)}
        latency_s = draw(seconds)
        layout = draw(st.sampled_from([Layout.KEPT, Layout.CHANNELS_LAST]))
        made.append(
            Contender(BUILD, layout, latency_s, [task(id_, draw(st.floats(0.0, 1.0))) for id_ in ids], op_seconds)
        )
    progress = {}
    for id_ in {id_ for each in made for of_op in each.op_seconds.values() for id_ in of_op}:
        gains = draw(st.lists(st.floats(0.5, 1.0), max_size=6))
        ratios = [1.0]
        for gain in gains:
            ratios.append(ratios[-1] * gain)
        progress[id_] = TaskProgress(0.0, ratios)
    return Contest(made), progress


@given(contests())
def test_what_is_best_so_far_and_what_belongs_to_no_op_stays_in_play(drawn):
    found, progress = drawn
    in_play = found.in_play(progress)
    assert "neither" in in_play
    ratios = {id_: each.ratios[-1] for id_, each in progress.items()}
    winners = found.winners(ratios)
    (layout,) = {winner.layout for winner in winners.values()}
    for op, winner in winners.items():
        assert winner.op_seconds[op].keys() <= in_play
        same = [each for each in found.contenders if each.layout is layout]
        assert all(winner.seconds(op, ratios) <= each.seconds(op, ratios) for each in same)
    total = sum(winner.seconds(op, ratios) for op, winner in winners.items())
    for each in found.contenders:
        assert total <= sum(each.seconds(op, ratios) for op in winners) * (1 + 1e-9)


@given(contests())
def test_nothing_is_given_up_that_one_more_round_could_make_the_best(drawn):
    """The first round may save three quarters; a sketch within that is kept until it was tried."""
    found, progress = drawn
    fresh = {id_: TaskProgress(0.0) for id_ in progress}
    in_play = found.in_play(fresh)
    ops = found.contenders[0].op_seconds
    for each in found.contenders:
        least = sum(min(other.seconds(op, {}) for other in found.contenders) for op in ops)
        same = [other for other in found.contenders if other.layout is each.layout]
        total = sum(min(other.seconds(op, {}) for other in same) for op in ops)
        if total > 4 * least * (1 - 1e-9):
            continue
        for op in ops:
            if each.seconds(op, {}) <= 4 * min(other.seconds(op, {}) for other in same) * (1 - 1e-9):
                assert each.op_seconds[op].keys() <= in_play


def test_what_is_hopelessly_behind_is_given_up():
    slow, fast = (
        Contender(BUILD, Layout.KEPT, s, [task(name, 1.0)], {"op": {name: s}})
        for name, s in (("slow", 8.0), ("fast", 1.0))
    )
    assert Contest([fast, slow]).in_play({"slow": TaskProgress(0.0), "fast": TaskProgress(0.0)}) == {"fast"}
    # Searched for seven rounds in vain, the nearer one is given up too.
    near = Contender(BUILD, Layout.KEPT, 1.5, [task("near", 1.0)], {"op": {"near": 1.5}})
    progress = {"near": TaskProgress(0.0, [1.0] * 8), "fast": TaskProgress(0.0)}
    assert Contest([fast, near]).in_play(progress) == {"fast"}


def test_an_op_that_cannot_be_told_apart_wins_nothing():
    """Its launches may be merged with others' in one build: that it is not seen there does not make it free."""
    seen = Contender(BUILD, Layout.KEPT, 1.0, [task("a", 1.0)], {"op": {"a": 1.0}, "other": {"a": 1.0}})
    merged = Contender(BUILD, Layout.KEPT, 1.0, [task("b", 1.0)], {"other": {"b": 1.5}})
    assert Contest([merged, seen]).winners({}) == {"other": seen, "op": seen}
    alone = replace(merged, layout=Layout.CHANNELS_LAST)
    assert Contest([alone, seen]).winners({}) == {"other": seen, "op": seen}


@given(contests())
def test_shares_are_of_the_first_contenders_time(drawn):
    found, _ = drawn
    seconds = {}
    for each in found.contenders:
        for one in each.tasks:
            seconds.setdefault(one.id, each.latency_s * one.share)
    for one in found.tasks:
        assert one.share * found.contenders[0].latency_s == pytest.approx(seconds[one.id])
    assert len({one.id for one in found.tasks}) == len(found.tasks)


def test_tuned_tasks_save_their_part_of_the_whole():
    found = Contender(
        BUILD, Layout.KEPT, 2.0, [task("a", 0.5), task("b", 0.25), replace(task("c", 0.0), share=None)], {}
    )
    assert found.tuned_s({}) == 2.0
    assert found.tuned_s({"a": 0.5, "c": 0.1, "elsewhere": 0.1}) == 1.5


def two_convolutions() -> str:
    """Two strided projections of different sizes, one after the other."""
    (x, y, z), (v, w) = (
        [f"tensor<{shape}xf32>" for shape in shapes]
        for shapes in (("1x48x56x56", "1x64x28x28", "1x96x14x14"), ("64x48x1x1", "96x64x1x1"))
    )
    op = "linalg.conv_2d_nchw_fchw {strides = dense<2> : tensor<2xi64>}"
    return f"""
func.func @main(%x: {x}, %v: {v}, %w: {w}) -> {z} {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : {y}
  %f = linalg.fill ins(%zero : f32) outs(%e : {y}) -> {y}
  %y = {op} ins(%x, %v : {x}, {v}) outs(%f : {y}) -> {y}
  %g = tensor.empty() : {z}
  %h = linalg.fill ins(%zero : f32) outs(%g : {z}) -> {z}
  %z = {op} ins(%y, %w : {y}, {w}) outs(%h : {z}) -> {z}
  return %z : {z}
}}
"""


@pytest.mark.parametrize("end", ["faster", "slower", "fails"])
def test_a_mix_of_what_was_tuned_side_by_side_is_built_told_and_replayed(end, tmp_path, monkeypatch):
    """One op keeps the sketch that was best at default sizes, the other gets its rival's, if they go well together."""
    monkeypatch.setattr(run, "variants", lambda structure: (structure,))
    monkeypatch.setattr(task_search, "_ROUND", 2)
    monkeypatch.setattr(structures, "LAYOUTS", (Layout.KEPT,))
    # However far behind, both ops have a rival, so that the mix is neither contender.
    monkeypatch.setattr(structures, "_RIVAL", 1e6)

    def alternating(self, ratios):
        assert len(self.contenders) == 2
        return dict(zip(self.contenders[0].op_seconds, self.contenders, strict=True))

    monkeypatch.setattr(Contest, "winners", alternating)
    mixed, mixes = structures.StructureSearch.mixed, []

    def watched(self, sources):
        mixes.append(mixed(self, sources))
        return mixes[-1]

    monkeypatch.setattr(structures.StructureSearch, "mixed", watched)
    measure = ModelStage.run

    def run_mix(self, vmfb, **options):
        found = measure(self, vmfb, **options)
        if not (mixes and vmfb.parent.name == mixes[-1].key):
            return found
        if end == "fails":
            return replace(found, status=Status.RUN_TIMEOUT, samples=(), message="too slow")
        return replace(found, samples=(1e-9 if end == "faster" else 9.0,))

    monkeypatch.setattr(ModelStage, "run", run_mix)
    build_tuned, settled = Finish.build_tuned, []

    def build_watched(self, build, *rest):
        settled.append(build)
        return build_tuned(self, build, *rest)

    monkeypatch.setattr(Finish, "build_tuned", build_watched)
    (model := tmp_path / "model.mlir").write_text(two_convolutions())
    out = tmp_path / "out"
    report = run_tuning(str(model), TuneOptions(out, budget_s=None, trials=8), SilentProgress())
    assert any(timing["tuned_ms"] is not None for op in report["structures"] for timing in op["timings"])
    assert report["largest_relative_error"] <= report["tolerance"]
    assert report["speedup"] > 2
    assert ([build.alternative for build in settled] == mixes) == (end == "faster")
    assert any("mix" in note for note in report["notes"]) == (end == "fails")
    applied = compile_tuned(str(model), "cpu", out, tmp_path / "again.vmfb")
    assert not applied.missing
    assert (tmp_path / "again.vmfb").read_bytes() == (out / "tuned.vmfb").read_bytes()

"""Plans put together from the fastest sketch of each op, in models where a sketch may be slow beside another one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from configured import CPU
from hypothesis import example, given
from hypothesis import strategies as st

from felix_mlir.apply import Alternative, with_tasks
from felix_mlir.compiler.process import BuildOutcome, BuildStatus
from felix_mlir.measure import Measurement, Status
from felix_mlir.passes.rewrites import Rewrites
from felix_mlir.records import Record
from felix_mlir.report import SilentProgress
from felix_mlir.sketches import AS_IT_IS, Layout, RootOptions, plans
from felix_mlir.tuning import structures
from felix_mlir.tuning.budget import Budget
from felix_mlir.tuning.model_stage import Build
from felix_mlir.tuning.workspace import State

OK = BuildOutcome(BuildStatus.OK, "", "", ("iree-compile",), 0.0)


@dataclass
class MadeUpModel:
    """A chain of ops: a plan's seconds are those of its sketches, more where `beside` has what two neighbours chose.

    Takes the place of the stage that builds and measures, and counts what it builds.
    """

    alone: list[list[float]]
    beside: dict[tuple[int, int, int], float] = field(default_factory=dict)
    failing: frozenset[tuple[int, int]] = frozenset()
    built: list[dict[str, str]] = field(default_factory=list)
    default_latency_s: float = 100.0
    build_seconds: float = 1.0

    def options(self) -> list[RootOptions]:
        return [
            RootOptions(
                SimpleNamespace(id=f"op{op}", locations=("loc",)),
                {f"sketch{number}": SimpleNamespace(layout=Layout.KEPT) for number in range(len(seconds))},
                dict.fromkeys((AS_IT_IS, *(f"sketch{number}" for number in range(len(seconds)))), 1.0),
                {layout: tuple(f"sketch{number}" for number in range(len(seconds))) for layout in Layout},
            )
            for op, seconds in enumerate(self.alone)
        ]

    def op_seconds(self, plan: dict[str, str]) -> dict[str, float]:
        chosen = [int(plan[f"op{op}"].removeprefix("sketch")) for op in range(len(self.alone))]
        after = [*chosen[1:], None]
        return {
            f"op{op}": self.alone[op][own] + self.beside.get((op, own, then), 0.0)
            for op, (own, then) in enumerate(zip(chosen, after, strict=True))
        }

    def seconds(self, plan: dict[str, str]) -> float:
        return sum(self.op_seconds(plan).values())

    def build(self, alternative: Alternative):
        plan = json.loads(alternative.rewrites.script)
        assert plan not in self.built
        self.built.append(plan)
        return Build(alternative, Path("flow"), Path(alternative.rewrites.script), with_tasks("", CPU, alternative)), OK

    def run(self, vmfb: Path) -> Measurement:
        plan = json.loads(str(vmfb))
        if any(plan[f"op{op}"] == f"sketch{number}" for op, number in self.failing):
            return Measurement(Status.WRONG_RESULT, (), "wrong", None, "", cut_off=False, command="run")
        return Measurement(Status.OK, (self.seconds(plan),), "", 0.0, "", cut_off=False, command="run")

    def profile(self, vmfb: Path) -> None:
        pass

    def launch_seconds(self, build, latency_s, roots, profile):
        plan = json.loads(build.alternative.rewrites.script)
        return {id_: {"export": seconds} for id_, seconds in self.op_seconds(plan).items()}


class Records(list):
    """What a session keeps on disk."""

    progress = SilentProgress()
    target = CPU

    def record(self, task, template, knobs, status, *, latency_s=None, message="", **_):
        self.append(Record(task, template, knobs, "cpu", "1", "here", status, latency_s=latency_s, message=message))

    def history(self, task):
        return [record for record in self if record.task == task]


@pytest.fixture(scope="module", autouse=True)
def plans_are_their_scripts():
    def alternative(layout, options, plan):
        return Alternative(layout.value, (), rewrites=Rewrites(tuple(plan), json.dumps(plan)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structures, "plan_alternative", alternative)
        patch.setattr(structures, "content_hash", str)
        patch.setattr(structures, "read_options", lambda stage, target: stage.options())
        yield


def search(model: MadeUpModel, records: Records, seconds: float | None = None, clock=lambda: 0.0):
    budget = Budget(State("model", "cpu", 0), seconds, None, clock)
    return structures.StructureSearch(model, SimpleNamespace(flow="flow"), records, budget, [])


def found(model: MadeUpModel, records: Records, **budget) -> list[dict[str, str]]:
    return [json.loads(each.rewrites.script) for each in search(model, records, **budget).find()]


@st.composite
def models(draw) -> MadeUpModel:
    seconds = st.floats(0.1, 10.0)
    alone = draw(st.lists(st.lists(seconds, min_size=1, max_size=4), min_size=1, max_size=5))
    pairs = [
        (op, own, then)
        for op in range(len(alone) - 1)
        for own in range(len(alone[op]))
        for then in range(len(alone[op + 1]))
    ]
    beside = draw(st.dictionaries(st.sampled_from(pairs), seconds)) if pairs else {}
    return MadeUpModel(alone, beside)


@given(models())
@example(MadeUpModel([[0.1, 0.2], [0.2, 0.1]], {(0, 0, 1): 0.9}))  # a plain product before one that packs
def test_the_fastest_plan_that_was_measured_is_found_and_measured_once(model):
    """Every sketch was measured, and the sum of the best ones is no reason to take a slower plan."""
    records = Records()
    (plan,) = found(model, records)
    assert all(plan in model.built for plan in plans(model.options(), Layout.KEPT))
    assert model.seconds(plan) == min(map(model.seconds, model.built))
    # A second run knows it all from the records.
    again = MadeUpModel(model.alone, model.beside)
    assert found(again, records) == [plan]
    assert not again.built


@given(models())
def test_ops_that_do_not_meet_each_get_their_fastest_sketch(model):
    # A model that takes seconds is not profiled: of it only a bound is known.
    model.alone = [[seconds / 100 for seconds in of_op] for of_op in model.alone]
    model.beside.clear()
    (plan,) = found(model, Records())
    assert model.seconds(plan) * structures._PROMISING <= sum(map(min, model.alone))
    assert len(model.built) <= max(map(len, model.alone)) + 1


def test_a_slow_meeting_is_gone_round():
    """Plans of one kind take 0.3 s, their fastest parts together 0.6 s, and what was learned from that 0.22 s."""
    model = MadeUpModel([[0.1, 0.2, 0.12], [0.2, 0.1, 0.3]], {(0, 0, 1): 0.4})
    (plan,) = found(model, Records())
    assert plan == {"op0": "sketch2", "op1": "sketch1"}
    assert {"op0": "sketch0", "op1": "sketch1"} in model.built


@given(models(), st.floats(1.0, 12.0))
def test_without_time_a_promising_combination_is_left_to_be_compared(model, limit_s):
    """The fastest plan that was measured is found whenever there is one, with at most one more."""
    clock = SimpleNamespace(now=0.0)

    def build(alternative):
        clock.now += 1.0
        return MadeUpModel.build(model, alternative)

    model.build = build
    kept = found(model, Records(), seconds=limit_s, clock=lambda: clock.now)
    measured = [plan for plan in kept if plan in model.built]
    if model.built:
        (fastest,) = measured
        assert model.seconds(fastest) == min(map(model.seconds, model.built))
    assert len(kept) <= 2


@given(models(), st.integers(0, 3))
def test_plans_that_compute_something_else_are_never_found(model, number):
    model.failing = frozenset({(0, number % len(model.alone[0]))})
    records = Records()
    for plan in found(model, records):
        assert (0, int(plan["op0"].removeprefix("sketch"))) not in model.failing
    again = MadeUpModel(model.alone, model.beside, model.failing)
    found(again, records)
    assert not again.built

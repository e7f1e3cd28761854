"""Finding the structure of a model: which sketch each of its root ops is computed by.

Sketches are measured where they will be used, inside the model, between the op's own producers and consumers: a plan
gives every root op one sketch, and the profile of the model that it makes says what each op then takes, the
transposes that did not cancel among it. As many models as an op has sketches measure all sketches of all ops. What is
fastest by itself need not be so beside others (a pack that IREE fuses into the plain product before it leaves that
without vectors), so the plan of the fastest sketches is measured too, and put together again from what it shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from felix_mlir.apply import DEFAULT, Alternative, variants
from felix_mlir.compiler.parallel import run_parallel
from felix_mlir.compiler.process import BuildOutcome
from felix_mlir.cost import read_machine
from felix_mlir.measure import Status
from felix_mlir.passes.rewrites import Rewrites, replaced_roots
from felix_mlir.sketches import (
    AS_IT_IS,
    LAYOUTS,
    Layout,
    Plan,
    RootOp,
    RootOptions,
    best_plan,
    chosen_sketches,
    estimated_s,
    estimated_sum,
    plans,
    read_roots,
    rewrite_script,
    root_options,
    sketches_of,
)
from felix_mlir.target import Target
from felix_mlir.tuning.alternatives import content_hash
from felix_mlir.tuning.budget import Budget
from felix_mlir.tuning.model_stage import Build, ModelStage
from felix_mlir.tuning.session import Session, failure

# Padding stands between the transposes of two convolutions, which cancel only where one is moved through it.
_FLAGS = {Layout.CHANNELS_LAST: ("--iree-global-opt-enable-sink-transpose-through-pad",)}
# Share of the time budget that measuring plans may take.
_SHARE = 0.5
# Sketches of one op worth measuring in one layout, and how much slower than the best estimate they may be.
_MOST_SKETCHES = 4
_SLOWEST = 6.0
# A sketch this much slower than the chosen one at the compiler's tile sizes is not tuned beside it: a convolution on
# 256-bit vectors has gained 3.2 by its tile sizes.
_RIVAL = 3.0
# A combination of sketches is built where their seconds promise this part of the fastest plan's.
_PROMISING = 0.95
# A plan that leaves the model this many times slower than another, and above this many seconds, is not worth a profile.
_TOO_SLOW = 3.0
_SLOW_S = 2.0


@dataclass(frozen=True)
class OpStructure:
    """What was found for one root op: `sketch` is chosen; `seconds` are per run of the model, by layout and sketch.

    `tuned` are those with searched tile sizes, of the sketches that got that far.
    """

    options: RootOptions
    sketch: str
    seconds: Mapping[tuple[Layout, str], float]
    tuned: Mapping[tuple[Layout, str], float]


def read_options(stage: ModelStage, target: Target) -> list[RootOptions]:
    """Return the root ops of the model with their sketches, ordered by what each is estimated to take."""
    machine = read_machine(target)
    options: list[RootOptions] = []
    for root in read_roots(stage.preprocessed()):
        sketches = sketches_of(root, machine.limits.vector_bytes)
        as_it_is, seconds = estimated_s(root, sketches, machine)
        options.append(root_options(root, sketches, {**seconds, AS_IT_IS: as_it_is}, _MOST_SKETCHES, _SLOWEST))
    return options


def plan_alternative(layout: Layout, options: Sequence[RootOptions], plan: Plan) -> Alternative:
    """Return the way to compile the model that a plan of a layout is; the default if it changes nothing."""
    chosen = chosen_sketches(options, plan)
    if not chosen:
        return DEFAULT
    rewrites = Rewrites(tuple(root.id for root, _ in chosen), rewrite_script(chosen))
    return Alternative(layout.value, _FLAGS.get(layout, ()), rewrites=rewrites)


def predicted_structure(stage: ModelStage, target: Target) -> tuple[Alternative, list[OpStructure]]:
    """Return the structure that is estimated to be the fastest, by the layout whose sum over all ops is smallest."""
    options = read_options(stage, target)
    layout = min(LAYOUTS, key=lambda layout: estimated_sum(options, layout))
    plan = best_plan(options, layout, {})
    found = [OpStructure(option, plan[option.root.id], {}, {}) for option in options if option.sketches]
    return plan_alternative(layout, options, plan), found


class StructureSearch:
    """Measures sketches in one model; `notes` gets a line for each that is dropped."""

    def __init__(self, stage: ModelStage, default: Build, session: Session, budget: Budget, notes: list[str]) -> None:
        self._stage = stage
        self._default = default
        self._session = session
        self._budget = budget
        self._notes = notes
        self._records = f"sketches-{content_hash(default.flow)}"
        self._options = read_options(stage, session.target)
        # Where no sketch wants another layout there is nothing to try in it.
        wanted = {sketch.layout for option in self._options for sketch in option.sketches.values()}
        self._layouts = [layout for layout in LAYOUTS if layout is Layout.KEPT or layout in wanted]
        # What root ops took by each sketch: at least, and in the last plan they were booked from.
        self._seconds: dict[Layout, dict[tuple[str, str], float]] = {layout: {} for layout in self._layouts}
        self._last_seconds: dict[Layout, dict[tuple[str, str], float]] = {layout: {} for layout in self._layouts}
        self._latencies: dict[Layout, dict[str, float]] = {layout: {} for layout in self._layouts}
        self._plans: dict[str, tuple[Layout, Plan]] = {}
        self._tried: set[str] = set()
        self._read_records()
        self._tuned: dict[tuple[Layout, str, str], float] = {}
        self._fastest_s = stage.default_latency_s

    def find(self) -> list[Alternative]:
        """Return the best plans of each layout that change the model; none where there is nothing to rewrite.

        They are the fastest that was measured, and before it one that is promising but was not reached.
        """
        if not any(option.sketches for option in self._options):
            return []
        if self._session.target.has_profiler:
            for layout in self._layouts:
                self._measure(layout, [plan for plan in plans(self._options, layout) if self._is_news(layout, plan)])
            for layout in self._layouts:
                while self._is_promising(layout, plan := self._combination(layout)) and not self._share_used_up():
                    self._measure(layout, [plan])
        found: list[Alternative] = []
        for layout in self._layouts:
            combination = self._combination(layout)
            if self._is_promising(layout, combination):
                found.append(self._alternative(layout, combination))
            found.append(self._alternative(layout, self._fastest_plan(layout)))
        working = {key for latencies in self._latencies.values() for key in latencies}
        failed = self._tried - working
        return [each for each in dict.fromkeys(found) if each is not DEFAULT and each.key not in failed]

    def structures(self, alternative: Alternative) -> list[OpStructure]:
        """Return what each root op got in an alternative."""
        _, plan = self._plan_of(alternative)
        return [
            OpStructure(
                option,
                plan[option.root.id],
                {
                    (layout, name): seconds
                    for layout, known in self._seconds.items()
                    for (id_, name), seconds in known.items()
                    if id_ == option.root.id
                },
                {
                    (layout, name): seconds
                    for (layout, id_, name), seconds in self._tuned.items()
                    if id_ == option.root.id
                },
            )
            for option in self._options
            if option.sketches
        ]

    @property
    def roots(self) -> list[RootOp]:
        """The root ops of the model, those without sketches among them."""
        return [option.root for option in self._options]

    def rivals(self, base: Alternative) -> list[Alternative]:
        """Return other structures for `base` that are near enough to win with other tile sizes, the best first.

        They are the best plan of another layout, and of each layout the next best sketch of each op that has one.
        """
        own_layout, own_plan = self._plan_of(base)
        limit_s = _RIVAL * self._sum(own_layout, own_plan)
        found: dict[str, tuple[float, Alternative]] = {}
        for layout in self._layouts:
            best = own_plan if layout is own_layout else self._fastest_plan(layout)
            for plan in (best, {**best, **self._next_best(layout, best)}):
                total_s = self._sum(layout, plan)
                if total_s <= limit_s:
                    rival = self._with_plan(base, layout, plan)
                    found[rival.key] = total_s, rival
        found.pop(base.key, None)
        return [rival for _, rival in sorted(found.values(), key=lambda pair: pair[0])]

    def _next_best(self, layout: Layout, plan: Plan) -> dict[str, str]:
        """Return the sketch to try next of each root op that has another one near enough."""
        known = self._seconds[layout]
        found: dict[str, str] = {}
        for option in self._options:
            id_ = option.root.id
            limit_s = _RIVAL * known.get((id_, plan[id_]), 0.0)
            near = [
                name for name in option.order[layout] if name != plan[id_] and known.get((id_, name), inf) < limit_s
            ]
            if near:
                found[id_] = min(near, key=lambda name: known[id_, name])
        return found

    def _sum(self, layout: Layout, plan: Plan) -> float:
        return sum(self._seconds[layout].get(choice, inf) for choice in plan.items())

    def _fastest_plan(self, layout: Layout) -> Plan:
        """Return the fastest plan of those that were measured, the most promising where none was."""
        latencies = self._latencies[layout]
        if not latencies:
            return best_plan(self._options, layout, self._seconds[layout])
        return self._plans[min(latencies, key=latencies.__getitem__)][1]

    def _combination(self, layout: Layout) -> Plan:
        """Return the plan of each op's fastest sketch, by what they took last."""
        return best_plan(self._options, layout, self._last_seconds[layout])

    def _is_promising(self, layout: Layout, plan: Plan) -> bool:
        """Whether a combination was not measured and should be faster than every plan that was."""
        if not self._latencies[layout] or self._alternative(layout, plan).key in self._tried:
            return False
        # An op that nothing is known of has no launches of its own.
        promised_s = sum(self._last_seconds[layout].get(choice, 0.0) for choice in plan.items())
        fastest_s = sum(self._seconds[layout].get(choice, 0.0) for choice in self._fastest_plan(layout).items())
        return promised_s < _PROMISING * fastest_s

    def layout_of(self, alternative: Alternative) -> Layout:
        """Return the layout of the plan that an alternative was made of."""
        return self._plan_of(alternative)[0]

    def mixed(self, sources: Mapping[str, Alternative]) -> Alternative:
        """Return the alternative in which each root op has the sketch of the one that `sources` has for it.

        They are all of one layout and compiled in one way.
        """
        first = next(iter(sources.values()))
        layout, plan = self._plan_of(first)
        mixed = {**plan, **{id_: self._plan_of(each)[1][id_] for id_, each in sources.items()}}
        return self._with_plan(first, layout, mixed)

    def book_tuned(self, alternative: Alternative, seconds: Mapping[str, float]) -> None:
        """Say what root ops take in a build of `alternative` with tuned tile sizes."""
        layout, plan = self._plan_of(alternative)
        self._tuned |= {(layout, id_, plan[id_]): taken_s for id_, taken_s in seconds.items()}

    def _plan_of(self, alternative: Alternative) -> tuple[Layout, Plan]:
        if alternative.rewrites is None:
            return Layout.KEPT, {option.root.id: AS_IT_IS for option in self._options}
        return self._plans[alternative.key]

    def _with_plan(self, base: Alternative, layout: Layout, plan: Plan) -> Alternative:
        """Return the model compiled as `base` is, but with the sketches of a plan."""
        ways = zip(
            variants(self._alternative(*self._plan_of(base))), variants(self._alternative(layout, plan)), strict=True
        )
        return next(new for old, new in ways if old == base)

    def _measure(self, layout: Layout, waiting: list[Plan]) -> None:
        """Build and profile plans until they are through or the budget's share is used up."""
        cores = self._session.target.cores
        while waiting and not self._share_used_up():
            batch, waiting = waiting[:cores], waiting[cores:]
            self._session.progress.stage(f"trying other structures in the model: {layout.value}")
            alternatives = [self._alternative(layout, plan) for plan in batch]
            self._tried |= {alternative.key for alternative in alternatives}
            builds = run_parallel(cores, [partial(self._build, alternative) for alternative in alternatives])
            for plan, (build, outcome) in zip(batch, builds, strict=True):
                if build is not None:
                    self._time(layout, plan, build)
                elif outcome is not None and (repaired := self._repaired(layout, plan, outcome)) is not None:
                    waiting.insert(0, repaired)
                self._budget.tick()

    def _build(self, alternative: Alternative) -> tuple[Build | None, BuildOutcome | None]:
        return (self._default, None) if alternative is DEFAULT else self._stage.build(alternative)

    def _repaired(self, layout: Layout, plan: Plan, outcome: BuildOutcome) -> Plan | None:
        """Return a plan without the sketches that a failed compilation blames, None where it blames none."""
        blamed = self._blamed(outcome, plan)
        if not blamed:
            self._notes.append(f"a plan of sketches ({layout.value}) is not used: {outcome.failure}")
            return None
        for id_ in blamed:
            self._notes.append(f"sketch {plan[id_]} of op {id_} is not used: {outcome.failure}")
            self._record(layout, id_, plan[id_], Status(outcome.status), None, outcome.message)
        return {id_: self._other(layout, id_) if id_ in blamed else name for id_, name in plan.items()}

    def _is_news(self, layout: Layout, plan: Plan) -> bool:
        is_known = all((id_, name) in self._seconds[layout] for id_, name in plan.items())
        return not is_known and self._alternative(layout, plan).key not in self._tried

    def _share_used_up(self) -> bool:
        if self._budget.seconds is None:
            return False
        next_s = self._stage.build_seconds + 2 * self._fastest_s
        return self._budget.elapsed_s + next_s > _SHARE * self._budget.seconds

    def _alternative(self, layout: Layout, plan: Plan) -> Alternative:
        alternative = plan_alternative(layout, self._options, plan)
        self._plans |= {variant.key: (layout, plan) for variant in variants(alternative)}
        return alternative

    def _blamed(self, outcome: BuildOutcome, plan: Plan) -> list[str]:
        """Return the root ops whose replacement a compiler message names; locations of their ops do."""
        named = replaced_roots(outcome.stderr)
        return [id_ for id_, name in plan.items() if id_ in named and name != AS_IT_IS]

    def _other(self, layout: Layout, id_: str) -> str:
        option = next(option for option in self._options if option.root.id == id_)
        known = self._seconds[layout]
        untried = [n for n in option.order[layout] if known.get((id_, n)) != inf]
        return untried[0] if untried else AS_IT_IS

    def _time(self, layout: Layout, plan: Plan, build: Build) -> None:
        """Run a build and book what each root op takes in it."""
        latency_s, key = self._stage.default_latency_s, build.alternative.key
        if build is not self._default:
            measurement = self._stage.run(build.vmfb)
            if measurement.latency_s is None:
                self._session.record(self._records, key, {}, measurement.status, message=measurement.message)
                self._notes.append(f"a plan of sketches ({layout.value}) is not used: {failure(measurement)}")
                return
            latency_s = measurement.latency_s
        is_slow = latency_s > max(_SLOW_S, _TOO_SLOW * self._fastest_s)
        self._fastest_s = min(self._fastest_s, latency_s)
        # Of a slow model only a bound is known: no op takes longer than the whole.
        taken = dict.fromkeys(plan, latency_s) if is_slow else self._taken(build, latency_s)
        known = self._seconds[layout]
        is_combination = not is_slow and all(choice in known for choice in plan.items())
        for id_, name in plan.items():
            if id_ in taken and (is_combination or (id_, name) not in known):
                self._record(layout, id_, name, Status.OK, taken[id_], "")
        positions = {id_: names.index(plan[id_]) for id_, names in self._names(layout).items()}
        self._session.record(self._records, f"{layout.value}/{key}", positions, Status.OK, latency_s=latency_s)
        self._latencies[layout][key] = latency_s

    def _taken(self, build: Build, latency_s: float) -> dict[str, float]:
        """Return the seconds of a run of the model that each root op takes."""
        launches = self._stage.launch_seconds(build, latency_s, self.roots, self._stage.profile(build.vmfb))
        return {id_: sum(of_op.values()) for id_, of_op in launches.items()}

    def _record(self, layout: Layout, id_: str, name: str, status: Status, seconds: float | None, message: str) -> None:
        self._session.record(
            self._records_of(id_), f"{layout.value}/{name}", {}, status, latency_s=seconds, message=message
        )
        self._book(layout, id_, name, seconds)

    def _book(self, layout: Layout, id_: str, name: str, seconds: float | None) -> None:
        known, choice = self._seconds[layout], (id_, name)
        known[choice] = inf if seconds is None else min(known.get(choice, inf), seconds)
        self._last_seconds[layout][choice] = inf if seconds is None else seconds

    def _records_of(self, id_: str) -> str:
        return f"{self._records}-{id_}"

    def _read_records(self) -> None:
        """Take what an earlier run on this machine measured."""
        layouts = {layout.value: layout for layout in self._layouts}
        for option in self._options:
            for record in self._session.history(self._records_of(option.root.id)):
                where, _, name = record.template.partition("/")
                if where in layouts:
                    self._book(layouts[where], option.root.id, name, record.latency_s)
        for record in self._session.history(self._records):
            where, _, key = record.template.rpartition("/")
            self._tried.add(key)
            if where in layouts and record.latency_s is not None:
                self._read_latency(layouts[where], key, record.knobs, record.latency_s)

    def _names(self, layout: Layout) -> dict[str, tuple[str, ...]]:
        """Return what a plan of a layout may name for each root op: what it stays where its sketches fail is last."""
        return {option.root.id: (*option.order[layout], AS_IT_IS) for option in self._options}

    def _read_latency(self, layout: Layout, key: str, positions: Mapping[str, int], latency_s: float) -> None:
        """Take the latency of a plan, if its positions among the promising sketches still mean the same."""
        names = self._names(layout)
        if all(positions.get(id_, len(of_op)) < len(of_op) for id_, of_op in names.items()):
            plan = {id_: of_op[positions[id_]] for id_, of_op in names.items()}
            if self._alternative(layout, plan).key == key:
                self._latencies[layout][key] = latency_s

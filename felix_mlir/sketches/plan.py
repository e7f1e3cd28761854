"""Plans: which sketch each root op of a model gets.

A plan keeps to one layout, so that the transposes of neighbours cancel, but for ops that are far faster in the other.
Few whole models measure all sketches of all ops: plan number i gives every op its i-th best sketch, and the time of
each op is read from the model's profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from felix_mlir.sketches.root import RootOp
from felix_mlir.sketches.sketch import Layout, Sketch

# As the model has it.
AS_IT_IS = "as it is"

# How much faster a sketch must be estimated to be, its transposes included, to break the layout around it.
_WORTH_TRANSPOSING = 2.0

LAYOUTS = (Layout.CHANNELS_LAST, Layout.KEPT)

Plan = Mapping[str, str]
"""The name of the sketch of each root op, by its id."""


@dataclass(frozen=True)
class RootOptions:
    """What there is to choose for one root op.

    `sketches` are all, by name, `seconds` what each is estimated to take (AS_IT_IS among them), `order` the names worth
    measuring in each layout, the most promising first.
    """

    root: RootOp
    sketches: Mapping[str, Sketch]
    seconds: Mapping[str, float]
    order: Mapping[Layout, tuple[str, ...]]


def root_options(
    root: RootOp, sketches: Sequence[Sketch], seconds: Mapping[str, float], most: int, slowest: float
) -> RootOptions:
    """Order the sketches of a root op by `seconds`, what each is estimated to take (AS_IT_IS among them).

    At most `most` a layout are kept, and none that is estimated to take `slowest` times as long as the best of them.
    Where the kept layout has nothing nearly as fast, a sketch may transpose there and back for itself.
    """
    order: dict[Layout, tuple[str, ...]] = {}
    for layout in LAYOUTS:
        names = [sketch.name for sketch in sketches if sketch.layout in (layout, Layout.ANY)]
        needs_layout = layout is Layout.CHANNELS_LAST and any(sketch.layout is layout for sketch in sketches)
        if not needs_layout:
            names.append(AS_IT_IS)
        if layout is Layout.KEPT:
            limit_s = min(seconds[name] for name in names) / _WORTH_TRANSPOSING
            others = [sketch.name for sketch in sketches if sketch.layout is Layout.CHANNELS_LAST]
            names += [name for name in others if seconds[name] <= limit_s]
        names.sort(key=lambda name: seconds[name])
        fit = [name for name in names if seconds[name] <= slowest * seconds[names[0]]]
        order[layout] = tuple(fit[:most])
    return RootOptions(root, {sketch.name: sketch for sketch in sketches}, seconds, order)


def plans(options: Sequence[RootOptions], layout: Layout) -> list[Plan]:
    """Return as few plans of a layout as give every root op each of its sketches once.

    An op that has run out of sketches gets its first again.
    """
    most = max((len(option.order[layout]) for option in options), default=0)
    return [
        {option.root.id: option.order[layout][index if index < len(option.order[layout]) else 0] for option in options}
        for index in range(most)
    ]


def best_plan(options: Sequence[RootOptions], layout: Layout, seconds: Mapping[tuple[str, str], float]) -> Plan:
    """Return the plan of each op's fastest sketch in a layout.

    `seconds` is what ops took in models of that layout, by root op and sketch; where nothing is known of an op it
    gets its most promising one.
    """
    chosen: dict[str, str] = {}
    for option in options:
        id_, names = option.root.id, option.order[layout]
        chosen[id_] = min(names, key=lambda name: seconds.get((id_, name), float("inf")))
    return chosen


def estimated_sum(options: Sequence[RootOptions], layout: Layout) -> float:
    """Return the estimated seconds of a run of the model with every op's most promising sketch in a layout."""
    return sum(len(option.root.locations) * option.seconds[option.order[layout][0]] for option in options)


def chosen_sketches(options: Sequence[RootOptions], plan: Plan) -> list[tuple[RootOp, Sketch]]:
    """Return the root ops a plan rewrites, each with its sketch."""
    return [
        (option.root, option.sketches[plan[option.root.id]]) for option in options if plan[option.root.id] != AS_IT_IS
    ]

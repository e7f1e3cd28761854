"""Which root op the launches of a compiled model come from, by the locations of what they compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from iree.compiler import ir

from felix_mlir.passes.rewrites import replaced_roots
from felix_mlir.schedule.dispatch import walk
from felix_mlir.sketches.root import RootOp


def launches_by_root(flow: Path, roots: Sequence[RootOp]) -> dict[str, dict[str, float]]:
    """Return, by the id of each root op, rewritten or not, which part of each entry point's launches compute it.

    `flow` is the model at the `flow` phase. A launch that computes several ops is divided evenly. Equal dispatches
    share an entry point, so what a launch is for is asked of the launch first, of the dispatch only then.
    """
    places = {
        location.removeprefix("loc(").removesuffix(")"): root.id
        for root in roots
        for location in root.locations
        if location != "loc(unknown)"
    }
    with ir.Context() as context:
        module = ir.Module.parse(flow.read_bytes(), context)
        inside = {
            _name(op.operation): _ids_in(op.operation, places)
            for op in module.body.operations
            if op.operation.name == "flow.executable"
        }
        calls: dict[str, list[set[str]]] = {}
        for function in module.body.operations:
            if function.operation.name != "util.func":
                continue
            for call in walk(function):
                if call.name == "flow.dispatch":
                    entry = ir.SymbolRefAttr(ir.ArrayAttr(call.attributes["entry_points"])[0]).value
                    ids = _ids(str(call.location), places) or inside.get(entry[0], set())
                    calls.setdefault(entry[-1], []).append(ids)
    parts: dict[str, dict[str, float]] = {}
    for export, launched in calls.items():
        for ids in launched:
            for id_ in ids:
                of_root = parts.setdefault(id_, {})
                of_root[export] = of_root.get(export, 0.0) + 1 / (len(ids) * len(launched))
    return parts


def _ids(location: str, places: Mapping[str, str]) -> set[str]:
    return {*replaced_roots(location), *(id_ for place, id_ in places.items() if place in location)}


def _ids_in(executable: ir.Operation, places: Mapping[str, str]) -> set[str]:
    """Ids of the root ops an executable holds: those of its reductions if there are any, else of everything in it."""
    everything: set[str] = set()
    reductions: set[str] = set()
    for op in walk(executable):
        if op.name.startswith(("linalg.", "tensor.")):
            ids = _ids(str(op.location), places)
            everything |= ids
            if op.name.startswith("linalg.") and "reduction" in str(op.attributes):
                reductions |= ids
    return reductions or everything


def _name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value

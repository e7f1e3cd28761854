"""GPU templates of reductions that IREE spreads over the threads of a workgroup: its VectorDistribute pipeline.

One loop, along which the root op reduces and the ops around it walk, is cut into pieces; the subgroups of a workgroup
and their lanes share a piece, each thread taking vectors of it. All ops of the dispatch carry a configuration, and
they must agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import sympy

from felix_mlir.schedule.configuration import ConfigurationAttributes, GpuTileLevel
from felix_mlir.schedule.cpu import tile_sizes
from felix_mlir.schedule.dispatch import PARALLEL, ComputeOp, Dispatch
from felix_mlir.schedule.gpu_configuration import GpuConfiguration, sizes_in, with_threads
from felix_mlir.schedule.gpu_limits import GpuLimits
from felix_mlir.schedule.gpu_simt import THREAD_REGISTERS, WIDEST_ACCESS_BITS
from felix_mlir.schedule.gpu_template import GpuTemplate
from felix_mlir.schedule.template import Constraint, Knob, OpTileSizes, knob_symbol

VECTOR_DISTRIBUTE = "VectorDistribute"
# A piece of the loop, in the entries of the root op and of ops that do not reduce.
_PIECES = ("partial_reduction", "serial")
_BASES = {"subgroup_basis", "lane_basis"}


@dataclass(frozen=True)
class _Shared:
    """How one op spreads a loop: its number in the op, and the sizes the compiler chose."""

    loop: int
    piece: int
    vector: int
    subgroups: int
    lanes: int


def reduction_templates(dispatch: Dispatch, default: GpuConfiguration, limits: GpuLimits) -> list[GpuTemplate]:
    """Return the template of a reduction that the compiler configured for VectorDistribute, else none.

    None either where its ops do not spread one and the same loop.
    """
    if dispatch.pipeline != VECTOR_DISTRIBUTE or default.intrinsic:
        return []
    configured = [op for op, tiles in zip(dispatch.ops, default.ops, strict=True) if tiles]
    texts = default.written.lowering_configs
    if len(configured) != len(texts):
        return []
    shared = [_shared(text, op) for text, op in zip(texts, configured, strict=True)]
    first = next((found for found, op in zip(shared, configured, strict=True) if op.is_root), None)
    if first is None or any(found is None or not _agree(found, first) for found in shared):
        return []
    return [_template(dispatch, default, limits, first, [s.loop for s in shared if s is not None])]


def _agree(a: _Shared, b: _Shared) -> bool:
    return (a.piece, a.vector, a.subgroups, a.lanes) == (b.piece, b.vector, b.subgroups, b.lanes)


def _shared(text: str, op: ComputeOp) -> _Shared | None:
    """Read how an op spreads a loop over a workgroup; None where it is not exactly one loop."""
    entries = dict(sizes_in(text))
    pieces = next((entries[name] for name in _PIECES if name in entries), ())
    loops = [loop for loop, size in enumerate(pieces) if size]
    bases = {name: _counts(text, name) for name in _BASES}
    vectors = entries.get("thread", ())
    if len(loops) != 1 or any(len(counts) != len(op.extents) for counts in (*bases.values(), vectors)):
        return None
    (loop,) = loops
    others = [value for counts in bases.values() for at, value in enumerate(counts) if at != loop and value != 1]
    others += [value for at, value in enumerate(vectors) if at != loop and value]
    if others:
        return None
    return _Shared(loop, pieces[loop], vectors[loop], bases["subgroup_basis"][loop], bases["lane_basis"][loop])


def _counts(text: str, basis: str) -> tuple[int, ...]:
    """The counts of a basis that gives the loops in their own order."""
    found = re.search(rf"{basis} = \[\[([\d, ]*)\], \[([\d, ]*)\]\]", text)
    counts, order = ([int(n) for n in group.split(",")] for group in found.groups()) if found else ([], [])
    return tuple(counts) if order == list(range(len(counts))) else ()


def _template(
    dispatch: Dispatch, default: GpuConfiguration, limits: GpuLimits, chosen: _Shared, loops: list[int]
) -> GpuTemplate:
    root, lanes = dispatch.root, chosen.lanes
    dim, extent = root.dims[chosen.loop], root.extents[chosen.loop]
    most = limits.threads_along_x
    widest = max(1, WIDEST_ACCESS_BITS // root.element_bits)
    # The lanes of a subgroup each take at least one element of a piece.
    pieces = {-(-size // lanes) * lanes for size in tile_sizes(extent)}
    choices = {
        GpuTileLevel.REDUCTION: pieces | {chosen.piece},
        GpuTileLevel.SUBGROUP: set(range(1, most // lanes + 1)),
        GpuTileLevel.THREAD: {1 << i for i in range(widest.bit_length())} | {chosen.vector},
    }
    knobs = {
        level: Knob(f"{'subgroups' if level is GpuTileLevel.SUBGROUP else level}_d{dim}", dim, level, extent,
                    tuple(sorted(options)))
        for level, options in choices.items()
    }  # fmt: skip
    piece, subgroups, vector = (knob.symbol for knob in knobs.values())
    constraints = (
        Constraint(
            f"every thread must take equally many vectors of a piece: {lanes} * {subgroups} * {vector} divides {piece}",
            sympy.Eq(sympy.Mod(piece, lanes * subgroups * vector), 0),
        ),
        Constraint(
            f"what a thread takes of a piece must fit its {THREAD_REGISTERS} registers",
            sympy.Le(piece * root.element_bits, THREAD_REGISTERS * 32 * lanes * subgroups),
        ),
    )
    names = {level: f"${knob.name}" for level, knob in knobs.items()}
    texts = default.written.lowering_configs
    configured = iter(loops)
    return GpuTemplate(
        name=VECTOR_DISTRIBUTE,
        dispatch=dispatch,
        knobs=tuple(knobs.values()),
        constraints=constraints,
        tiles=tuple(
            _tiles(op, given, next(configured), knobs) if given else {}
            for op, given in zip(dispatch.ops, default.ops, strict=True)
        ),
        threads=lanes * subgroups,
        subgroup_size=lanes,
        intrinsic=None,
        promoted=(),
        stages=sympy.Integer(1),
        limits=limits,
        pipeline=VECTOR_DISTRIBUTE,
        written=ConfigurationAttributes(
            with_threads(default.written.translation_info, "$threads"),
            tuple(_pattern(text, loop, names) for text, loop in zip(texts, loops, strict=True)),
        ),
        derived={"threads": lanes * subgroups},
    )


def _tiles(
    op: ComputeOp, given: Mapping[GpuTileLevel, tuple[int, ...]], loop: int, knobs: Mapping[GpuTileLevel, Knob]
) -> OpTileSizes:
    piece, subgroups, vector = (knob_symbol(knob.name) for knob in knobs.values())
    count = len(op.extents)
    workgroup = given.get(GpuTileLevel.WORKGROUP, (0,) * count)
    sizes = {GpuTileLevel.REDUCTION: piece.name, GpuTileLevel.SUBGROUP: piece / subgroups,
             GpuTileLevel.THREAD: vector.name}  # fmt: skip
    return {
        GpuTileLevel.WORKGROUP: tuple(
            size if kind == PARALLEL else 0 for size, kind in zip(workgroup, op.iterator_types, strict=True)
        ),
        **{level: tuple(size if at == loop else 0 for at in range(count)) for level, size in sizes.items()},
    }


def _pattern(text: str, loop: int, names: Mapping[GpuTileLevel, str]) -> str:
    """A printed lowering configuration with the names of knobs in place of an op's sizes along a loop."""
    of_entries = {
        **dict.fromkeys(_PIECES, names[GpuTileLevel.REDUCTION]),
        "subgroup_basis": names[GpuTileLevel.SUBGROUP],
        "thread": names[GpuTileLevel.THREAD],
    }

    def replace(found: re.Match[str]) -> str:
        name, opening, sizes = found.groups()
        items = sizes.split(", ")
        if name in of_entries:
            items[loop] = of_entries[name]
        return f"{name} = {opening}{', '.join(items)}]"

    return re.sub(r"(\w+) = (\[+)([\d, ]*)\]", replace, text)

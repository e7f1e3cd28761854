"""GPU templates with matrix intrinsics: knobs and rules are those the compiler states for its pipelines.

A module compiled with `--iree-codegen-emit-pipeline-constraints` has an `iree_codegen.smt.constraints` op beside a
root op that can use an intrinsic, one for each pipeline. Knobs that choose among attributes (the intrinsic) make one
template per choice; those an equation determines (threads, subgroup size) are computed from the others.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

import numpy as np
import sympy
from iree.compiler import ir

from felix_mlir.schedule.configuration import ConfigurationAttributes, GpuTileLevel
from felix_mlir.schedule.dispatch import PARALLEL, ComputeOp, Dispatch
from felix_mlir.schedule.gpu_limits import GpuLimits
from felix_mlir.schedule.gpu_lowering import (
    Tiles,
    accumulates_in_result_type,
    is_contraction,
    lowering_rules,
    needs_padding,
    whole_tile,
)
from felix_mlir.schedule.gpu_simt import TILE_AND_FUSE
from felix_mlir.schedule.gpu_template import GpuTemplate
from felix_mlir.schedule.smt import constraints_ops, read_rules, without_existing, without_given
from felix_mlir.schedule.template import Constraint, Knob, Size, knob_symbol

PADDING = "padding"
_OPTIONS, _SUBGROUPS = "gpu_pipeline_options", "subgroup_basis"
# Entries of a constraints op's knobs that are no part of a lowering configuration.
_TRANSLATION = (_OPTIONS, "workgroup_size", "subgroup_size")
_ONE_OF = re.compile(r'#iree_codegen\.smt\.one_of_knob<"(\w+)", \[([^\]]*)\]>')
_INT_KNOB = re.compile(r'#iree_codegen\.smt\.int_knob<"(\w+)">')

# The entries of `knobs` as MLIR prints them, `$name` in place of a knob.
Entries = Mapping[str, str]


def intrinsic_templates(dispatch: Dispatch, constraints: ir.Operation, limits: GpuLimits) -> list[GpuTemplate]:
    """Return the templates that the constraints ops of a module describe; `dispatch` is its only one.

    Those without an intrinsic are left out, and those over other loops than the root op's (a convolution turned into a
    matrix multiplication).
    """
    found = (_templates(dispatch, op, limits) for op in constraints_ops(constraints))
    return list(itertools.chain.from_iterable(found))


def _templates(dispatch: Dispatch, op: ir.Operation, limits: GpuLimits) -> Iterator[GpuTemplate]:
    counts = {name: len(options.split(",")) for name, options in _ONE_OF.findall(str(op.attributes["knobs"]))}
    pipeline = _name_in(str(op.attributes["pipeline"]))
    for chosen in itertools.product(*(range(count) for count in counts.values())):
        choice = dict(zip(counts, chosen, strict=True))
        entries = _entries(op, choice)
        if "mma_kind" not in entries:
            continue
        if pipeline == TILE_AND_FUSE and _needs_padding(dispatch.root, _name_in(entries["mma_kind"])):
            entries[PADDING] = f"[{', '.join(f'${PADDING}_{loop}' for loop in range(len(dispatch.root.extents)))}]"
        if all(len(_items(entries[level])) == len(dispatch.root.extents) for level in ("workgroup", "reduction")):
            template = _template(dispatch, op, choice, entries, pipeline, limits)
            if template is not None:
                yield template


def _template(
    dispatch: Dispatch, op: ir.Operation, choice: Mapping[str, int], entries: Entries, pipeline: str, limits: GpuLimits
) -> GpuTemplate | None:
    """The template for one choice among attributes, None where a rule forbids it whatever the sizes."""
    root, mma = dispatch.root, _name_in(entries["mma_kind"])
    rules = read_rules(op, choice)
    tiling = {name for level in _levels(entries) for name in re.findall(r"\$(\w+)", entries[level])}
    stated, derived = without_given(without_existing(rules), [name for name in rules.names if name not in tiling])
    if not accumulates_in_result_type(root, mma):
        return None
    known = [(knob_symbol(name), value) for name, value in derived.items()]
    threads = sympy.Mul(*(_value(item).subs(known) for item in _items(entries["workgroup_size"])))
    intrinsic = _intrinsic_sizes(root, mma)
    tiles = _tiles(entries, intrinsic, pipeline)
    promoted = tuple(int(number) for number in _items(entries["promote_operands"]))
    spread = promoted if "promotion_types" in entries else ()
    constraints = (*stated, *lowering_rules(root, tiles, spread, threads, is_padded=PADDING in entries))
    open_ = [name for name in rules.names if name not in derived]
    options = _options(open_, constraints, max(root.extents) + max(intrinsic))
    if any(c.condition == sympy.false for c in constraints) or not all(options.values()):
        return None
    if PADDING in entries:
        derived |= {f"{PADDING}_{loop}": size for loop, size in enumerate(whole_tile(tiles))}
    places = _places(entries)
    return GpuTemplate(
        name=f"{pipeline} {mma}",
        dispatch=dispatch,
        knobs=tuple(
            Knob(name, root.dims[loop], level, root.extents[loop], options[name])
            for name in open_
            for level, loop in [places[name]]
        ),
        # What holds for every option of a knob is no constraint.
        constraints=tuple(c for c in constraints if len(c.knobs) > 1),
        tiles=tuple(
            {level: tuple(map(_size, sizes)) for level, sizes in tiles.items()} if o.is_root else {}
            for o in dispatch.ops
        ),
        threads=threads,
        subgroup_size=int(_value(entries["subgroup_size"]).subs(known)),
        intrinsic=intrinsic,
        promoted=promoted,
        stages=_stages(entries).subs(known),
        limits=limits,
        pipeline=pipeline,
        written=_written(entries, pipeline),
        derived=derived,
    )


def _entries(op: ir.Operation, choice: Mapping[str, int]) -> dict[str, str]:
    knobs = ir.DictAttr(op.attributes["knobs"])
    named = (knobs[index] for index in range(len(knobs)))
    resolved = {
        entry.name: _ONE_OF.sub(lambda found: found.group(2).split(", ")[choice[found.group(1)]], str(entry.attr))
        for entry in named
    }
    return {name: _INT_KNOB.sub(r"$\1", text) for name, text in resolved.items()}


def _levels(entries: Entries) -> list[str]:
    return [name for name in ("workgroup", "subgroup", _SUBGROUPS, "reduction") if name in entries]


def _places(entries: Entries) -> dict[str, tuple[GpuTileLevel, int]]:
    """The level and loop of each knob that is a tile size, or the number of subgroups along a loop."""
    places: dict[str, tuple[GpuTileLevel, int]] = {}
    for entry in _levels(entries):
        level = GpuTileLevel.SUBGROUP if entry == _SUBGROUPS else GpuTileLevel(entry)
        items = _basis(entries) if entry == _SUBGROUPS else _items(entries[entry])
        places |= {item[1:]: (level, loop) for loop, item in enumerate(items) if item.startswith("$")}
    return places


def _basis(entries: Entries) -> list[str]:
    """The number of subgroups along each loop of the root op."""
    counts, order = re.findall(r"\[([^\[\]]*)\]", entries[_SUBGROUPS])
    by_loop = dict(zip(order.split(", "), counts.split(", "), strict=True))
    return [by_loop[str(loop)] for loop in range(len(by_loop))]


def _tiles(entries: Entries, intrinsic: tuple[int, ...], pipeline: str) -> Tiles:
    """Sizes in elements: TileAndFuse counts intrinsics at its inner levels, VectorDistribute subgroups along a loop."""
    workgroup = [_value(item) for item in _items(entries["workgroup"])]
    units = intrinsic if pipeline == TILE_AND_FUSE else (1,) * len(intrinsic)
    reduction = [_value(item) * unit for item, unit in zip(_items(entries["reduction"]), units, strict=True)]
    if _SUBGROUPS in entries:
        subgroup = [size / _value(count) for size, count in zip(workgroup, _basis(entries), strict=True)]
    else:
        subgroup = [_value(item) * unit for item, unit in zip(_items(entries["subgroup"]), units, strict=True)]
    return {
        GpuTileLevel.WORKGROUP: tuple(workgroup),
        GpuTileLevel.REDUCTION: tuple(reduction),
        GpuTileLevel.SUBGROUP: tuple(subgroup),
    }


def _size(size: sympy.Expr) -> Size:
    if isinstance(size, sympy.Symbol):
        return size.name
    return int(size) if size.is_number else size


def _options(names: list[str], constraints: tuple[Constraint, ...], most: int) -> dict[str, tuple[int, ...]]:
    """The sizes up to `most` of each knob that can be part of a legal candidate, by the rules over one or two knobs."""
    options = {name: np.arange(1, most + 1) for name in names}
    for constraint in sorted(constraints, key=lambda c: len(c.knobs)):
        if len(constraint.knobs) == 1:
            (name,) = constraint.knobs
            options[name] = options[name][constraint.holds({name: options[name]})]
        elif len(constraint.knobs) == 2:
            a, b = constraint.knobs
            rows, columns = (grid.ravel() for grid in np.meshgrid(options[a], options[b], indexing="ij"))
            holds = constraint.holds({a: rows, b: columns}).reshape(len(options[a]), len(options[b]))
            options[a], options[b] = options[a][holds.any(axis=1)], options[b][holds.any(axis=0)]
    return {name: tuple(int(size) for size in sizes) for name, sizes in options.items()}


def _intrinsic_sizes(root: ComputeOp, mma: str) -> tuple[int, ...]:
    """Elements one intrinsic covers along each loop of a contraction or convolution.

    Its rows run along the innermost parallel loop that only the first operand depends on, its columns along that of
    the second, and it sums over the innermost reduction loop that indexes the first by itself.
    """
    rows, columns, depth = (int(size) for size in re.findall(r"_(\d+)x(\d+)x(\d+)_", mma)[0])
    left, right = (set[int]().union(*operand.indices) for operand in root.operands[:2])
    parallel = {loop for loop, kind in enumerate(root.iterator_types) if kind == PARALLEL}
    plain = {loop for index in root.operands[0].indices if len(index) == 1 for loop in index} - parallel
    sizes = [1] * len(root.extents)
    for loops, size in ((parallel & left - right, rows), (parallel & right - left, columns), (plain, depth)):
        sizes[max(loops)] = size
    return tuple(sizes)


def _needs_padding(root: ComputeOp, mma: str) -> bool:
    return is_contraction(root) and needs_padding(root, _intrinsic_sizes(root, mma))


def _stages(entries: Entries) -> sympy.Expr:
    found = re.search(r"prefetch_num_stages = (\$?\w+)", entries[_OPTIONS])
    return _value(found.group(1)) if found else sympy.Integer(1)


def _written(entries: Entries, pipeline: str) -> ConfigurationAttributes:
    body = ", ".join(f"{name} = {text}" for name, text in sorted(entries.items()) if name not in _TRANSLATION)
    options = entries[_OPTIONS].strip("{}")
    return ConfigurationAttributes(
        f"#iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<{pipeline}> "
        f"workgroup_size = {entries['workgroup_size']} subgroup_size = {entries['subgroup_size']}, "
        f"{{{_OPTIONS} = #iree_gpu.pipeline_options<{options}>}}>",
        (f"#iree_gpu.lowering_config<{{{body}}}>",),
    )


def _items(text: str) -> list[str]:
    """The items of a printed list without lists in it."""
    return [item for item in text.strip("[]").split(", ") if item]


def _value(item: str) -> sympy.Expr:
    return knob_symbol(item[1:]) if item.startswith("$") else sympy.Integer(item)


def _name_in(attribute: str) -> str:
    """The word inside the brackets of a printed attribute."""
    return re.sub(r".*<(\w+)>", r"\1", attribute)

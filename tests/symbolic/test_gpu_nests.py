"""GPU templates as scripts: the loops are the configuration's, and symbolic nests are the concrete ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sympy
from cuda_tasks import CUDA_KINDS, cuda_task, draw
from test_read import at

from felix_mlir.schedule import GpuTemplate, GpuTileLevel, Knob
from felix_mlir.schedule.dispatch import PARALLEL
from felix_mlir.schedule.template import knob_symbol
from felix_mlir.symbolic import (
    Structure,
    read_nest,
    structure_of,
    structures,
    tile,
    tile_symbolically,
    tuning_script,
)
from felix_mlir.tasks import TunableTask

CHOSEN = (
    "batch_matmul", "conv2d_nchw", "conv2d_nhwc_strided", "depthwise_nhwc", "elementwise", "layer_norm", "matmul",
    "narrow_matmul", "pool_nhwc_max", "reduction", "softmax", "transpose",
)  # fmt: skip
INNER = (GpuTileLevel.SUBGROUP, GpuTileLevel.THREAD)


def task_of(kind: str) -> TunableTask:
    task = cuda_task(CUDA_KINDS[kind]).tunable
    assert task is not None
    return task


@pytest.mark.parametrize("kind", CHOSEN)
def test_symbolic_nest_is_the_concrete_one(kind):
    case = task_of(kind)
    for template in case.templates:
        (structure,) = structures(template)
        symbolic = read_nest(tile_symbolically(template, case.configured, structure), template)
        for values in draw(template, 3):
            assert structure_of(template, values) == structure
            concrete = at(read_nest(tile(template, case.configured, values), template), {})
            assert at(symbolic, {knob_symbol(name): size for name, size in values.items()}) == concrete


def sizes_of(template: GpuTemplate, values: dict[str, int], number: int) -> dict[tuple[GpuTileLevel, int], int]:
    """What tiles an op by level and dimension: the root op's sizes and its own; workgroups share no reduction."""
    op, root = template.dispatch.ops[number], template.dispatch.root
    sizes = template.tile_sizes(values)
    given = [(root, sizes[template.dispatch.root_index]), (op, sizes[number])]
    kinds = {dim: kind for o in (root, op) for dim, kind in zip(o.dims, o.iterator_types, strict=True)}
    return {
        (level, dim): size
        for owner, levels in given
        for level, of_level in levels.items()
        for dim, extent, size in zip(owner.dims, owner.extents, of_level, strict=True)
        if size and extent > 1 and dim in op.dims and (kinds[dim] == PARALLEL or level is not GpuTileLevel.WORKGROUP)
    }


@pytest.mark.parametrize("kind", CHOSEN)
def test_loops_step_as_the_template_says(kind):
    """The root op has all levels; every other op at least the threads that the root op has along its dimensions."""
    case = task_of(kind)
    for template in case.templates:
        for values in draw(template, 2):
            nest = read_nest(tile(template, case.configured, values), template)
            for around, stage in nest.stages():
                made = {(loop.level, loop.dim): int(loop.step) for loop in around if loop.dim in stage.dims}
                expected = sizes_of(template, values, stage.op)
                assert made.items() <= expected.items()
                if stage.is_root:
                    assert made == expected
                assert {key for key in made if key[0] in INNER} == {key for key in expected if key[0] in INNER}


def with_subgroups(case: TunableTask) -> GpuTemplate:
    """A template by hand whose sizes are multiples of knobs, as those of a matrix intrinsic are."""
    knobs = {
        name: Knob(name, dim, level, extent, options)
        for name, dim, level, extent, options in (
            ("count_m", 0, GpuTileLevel.SUBGROUP, 64, (1, 2)),
            ("count_n", 1, GpuTileLevel.SUBGROUP, 96, (1, 2, 3)),
            ("wg_n", 1, GpuTileLevel.WORKGROUP, 96, (48, 96)),
            ("steps", 2, GpuTileLevel.REDUCTION, 128, (1, 2, 4)),
        )
    }
    dispatch = case.templates[0].dispatch
    m, n, k = 16 * knobs["count_m"].symbol, 8 * knobs["count_n"].symbol, 16 * knobs["steps"].symbol
    root = {
        GpuTileLevel.WORKGROUP: (2 * m, "wg_n", 0),
        GpuTileLevel.REDUCTION: (0, 0, k),
        GpuTileLevel.SUBGROUP: (m, n, 0),
    }
    tiles = tuple(root if op.is_root else {} for op in dispatch.ops)
    threads = 64 * sympy.ceiling(knobs["wg_n"].symbol / n)
    return GpuTemplate(
        "by hand", dispatch, tuple(knobs.values()), (), tiles, threads, 32, (16, 8, 16), (0, 1),
        sympy.Integer(2), case.limits,
    )  # fmt: skip


def test_sizes_may_be_expressions_of_knobs():
    case = task_of("narrow_matmul")
    template = with_subgroups(case)
    values = {"count_m": 2, "count_n": 3, "wg_n": 48, "steps": 2}
    symbolic = read_nest(tile_symbolically(template, case.configured), template)
    concrete = read_nest(tile(template, case.configured, values), template)
    assert at(symbolic, {knob_symbol(name): size for name, size in values.items()}) == at(concrete, {})
    (loops,) = (around for around, stage in concrete.stages() if stage.is_root)
    assert [(loop.level.value, loop.dim, int(loop.step)) for loop in loops] == [
        ("workgroup", 0, 64), ("workgroup", 1, 48), ("reduction", 2, 32), ("subgroup", 0, 32), ("subgroup", 1, 24),
    ]  # fmt: skip
    some = read_nest(tile_symbolically(template, case.configured, fixed={"count_m": 2, "wg_n": 48}), template)
    assert {symbol.name for loop in _steps(some) for symbol in loop.free_symbols} == {"count_n", "steps"}


def _steps(nest) -> list[sympy.Expr]:
    return [loop.step for around, _ in nest.stages() for loop in around]


def test_an_open_script_names_every_size_once():
    template = with_subgroups(task_of("narrow_matmul"))
    script = tuning_script(template, {}, Structure())
    assert script.count("transform.tune.knob") == len({16, 8, 32}) + len({"wg_n", "steps"})
    assert 'knob<"16*count_m"> options = [16 : i64, 32 : i64]' in script
    fixed = tuning_script(template, {"count_m": 1}, Structure())
    assert "transform.param.constant 16 : i64" in fixed
    assert "count_m" not in fixed


def test_what_threads_share_of_a_reduction_is_a_loop_of_theirs():
    case = task_of("reduction")
    (template, *_) = case.templates
    root = template.dispatch.root_index
    by_thread = {**template.tiles[root], GpuTileLevel.THREAD: (1, 4)}
    tiles = tuple(by_thread if i == root else tiles for i, tiles in enumerate(template.tiles))
    shared = replace(template, tiles=tiles)
    nest = read_nest(tile_symbolically(shared, case.configured), shared)
    (loops,) = (around for around, stage in nest.stages() if stage.is_root)
    assert [(loop.level, loop.kind) for loop in loops if loop.level is GpuTileLevel.THREAD] == [
        (GpuTileLevel.THREAD, "parallel"),
        (GpuTileLevel.THREAD, "reduction"),
    ]

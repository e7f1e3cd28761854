"""The loop nest read back from tiled IR, symbolic and concrete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sympy
from configured import CPU, compile_checked
from iree.compiler import ir
from ops import KINDS

from felix_mlir.schedule import ScheduleTemplate, TileLevel
from felix_mlir.schedule.template import knob_symbol
from felix_mlir.symbolic import Loop, Stage, read_nest, structure_of, structures, tile, tile_symbolically
from felix_mlir.tasks import extract_tasks


def at(node: Any, values: dict[sympy.Symbol, int]) -> Any:
    """A nest, or any part of one, with sizes in place of knobs."""
    if isinstance(node, sympy.Basic):
        return int(node.xreplace({s: sympy.Integer(v) for s, v in values.items()}))
    if isinstance(node, (tuple, list)):
        return tuple(at(item, values) for item in node)
    if isinstance(node, dict):
        return {key: at(value, values) for key, value in node.items()}
    if hasattr(node, "__dataclass_fields__"):
        return (type(node).__name__, *(at(getattr(node, name), values) for name in node.__dataclass_fields__))
    return node


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_symbolic_nest_is_the_concrete_one(drawn, kind):
    """With sizes in place of knobs the symbolic nest equals, in every part, what concretely tiled IR reads as."""
    for found in drawn(kind, 6):
        symbolic: dict[Any, ir.Module] = {}
        for values in found.candidates:
            structure = structure_of(found.template, values)
            if structure not in symbolic:
                symbolic[structure] = tile_symbolically(found.template, found.task.configured, structure)
            concrete = at(read_nest(tile(found.template, found.task.configured, values), found.template), {})
            symbols = {knob_symbol(name): size for name, size in values.items()}
            assert at(read_nest(symbolic[structure], found.template), symbols) == concrete
            if not found.template.violations(values):
                assert at(read_nest(symbolic[structure], found.template, is_legal=True), symbols) == concrete


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_steps_are_the_sizes_of_the_configuration(drawn, kind):
    """Around each op, the loops of a level step as the configuration of the same candidate says."""
    for found in drawn(kind, 6):
        dispatch = found.template.dispatch
        for values in found.candidates:
            configuration = found.template.configuration(values)
            nest = read_nest(tile(found.template, found.task.configured, values), found.template)
            for loops, stage in nest.stages():
                given = configuration.ops[stage.op]
                for loop in loops:
                    if loop.level in given and loop.dim in stage.dims:
                        size = given[loop.level][stage.dims.index(loop.dim)]
                        assert size == loop.step, (loop, stage)
                if stage.is_root:
                    made = {(loop.level, loop.dim): int(loop.step) for loop in loops}
                    expected = {
                        (level, dim): size
                        for level, sizes in configuration.ops[dispatch.root_index].items()
                        for dim, extent, size in zip(stage.dims, dispatch.root.extents, sizes, strict=True)
                        if size and extent > 1
                    }
                    assert made == expected


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_structures_cover_the_space(drawn, kind):
    """Every candidate has one of the listed structures (a cache_parallel level that does not split aside)."""
    for found in drawn(kind, 50):
        listed = structures(found.template)
        for values in found.candidates:
            structure = structure_of(found.template, values)
            assert type(structure)(structure.idle - {TileLevel.CACHE_PARALLEL}, structure.recomputing) in listed


def test_matmul_nest(drawn):
    """Accesses, buffers and operations of a matmul with a fused ReLU, read from its IR."""
    [found] = drawn("matmul", 20)
    whole = structures(found.template)[0]
    nest = read_nest(tile_symbolically(found.template, found.task.configured, whole), found.template, is_legal=True)
    (_, fill), (loops, matmul), (_, relu) = nest.stages()
    m, n, k = (knob_symbol(f"vector_d{dim}") for dim in range(3))
    assert [(loop.level.value, loop.dim) for loop in loops] == [
        *((level, dim) for level in ("distribution", "cache_parallel", "vector_common_parallel") for dim in (0, 1)),
        ("vector_reduction", 2),
    ]
    assert loops[2].extent == knob_symbol("distribution_d0") and loops[2].step == knob_symbol("cache_d0")
    # The minimum is left out where no option of the knob exceeds the extent.
    for values in found.candidates:
        at = {knob_symbol(name): value for name, value in values.items()}
        sizes = [min(extent, at[knob]) for extent, knob in zip((50, 96, 72), (m, n, k), strict=True)]
        assert [tile.subs(at) for tile in matmul.tile] == sizes
    assert matmul.operations == {"arith.mulf": 1, "arith.addf": 1} and matmul.is_root
    a, b, c = matmul.accesses
    assert (a.buffer.shape, a.indices) == ((50, 72), (({0: 1}, 0), ({2: 1}, 0)))
    assert (b.buffer.shape, b.indices) == ((72, 96), (({2: 1}, 0), ({1: 1}, 0)))
    assert c.reads and c.writes and c.buffer.is_temporary and c.buffer.shape == matmul.tile[:2]
    assert fill.accesses[0].buffer == c.buffer == relu.accesses[0].buffer
    assert not fill.accesses[0].reads
    assert not relu.accesses[1].buffer.is_temporary and relu.accesses[1].buffer.shape == (50, 96)


def test_window_accesses(drawn):
    """A strided convolution reads its image at stride times output position plus window position."""
    [found] = drawn("conv2d_nhwc_strided", 0)
    nest = read_nest(tile_symbolically(found.template, found.task.configured), found.template)
    conv = next(stage for _, stage in nest.stages() if stage.is_root)
    assert conv.accesses[0].indices == (({0: 1}, 0), ({1: 2, 4: 1}, 0), ({2: 2, 5: 1}, 0), ({6: 1}, 0))


def test_a_maximum_is_computed_again_where_an_edge_cuts_tiles(drawn):
    """In a softmax whose tiles are cut off the sum's vector loop contains the maximum; with equal tiles it does not."""
    [found] = drawn("softmax", 0)
    for structure in structures(found.template):
        nest = read_nest(tile_symbolically(found.template, found.task.configured, structure), found.template)
        level = TileLevel.VECTOR_REDUCTION
        around = [{(loop.level, loop.dim) for loop in loops} for loops, stage in nest.stages() if stage.op == 1]
        assert any((level, 2) in loops for loops in around) == (level in structure.recomputing)


def test_loops_and_stages_are_all_there_is(drawn):
    [found] = drawn("matmul", 0)
    nest = read_nest(tile_symbolically(found.template, found.task.configured), found.template)
    assert all(isinstance(node, (Loop, Stage)) for node in nest.body)
    assert {access.buffer for _, stage in nest.stages() for access in stage.accesses} == set(nest.buffers)


TWO_RESULTS = """
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%a: tensor<50x72xf32>, %b: tensor<72x96xf32>) -> (tensor<50x96xf32>, tensor<50x96xf32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<50x96xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<50x96xf32>) -> tensor<50x96xf32>
  %c = linalg.matmul ins(%a, %b : tensor<50x72xf32>, tensor<72x96xf32>)
      outs(%init : tensor<50x96xf32>) -> tensor<50x96xf32>
  %both:2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<50x96xf32>) outs(%empty, %empty : tensor<50x96xf32>, tensor<50x96xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %e = math.exp %x : f32
    %n = arith.negf %x : f32
    linalg.yield %e, %n : f32, f32
  } -> (tensor<50x96xf32>, tensor<50x96xf32>)
  return %both#0, %both#1 : tensor<50x96xf32>, tensor<50x96xf32>
}"""

# Rows normalised by mean and variance: two sums that start from one fill, in one dispatch with --iree-opt-level=O3.
NORMALISED = """
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @main(%x: tensor<50x768xf32>) -> tensor<50x768xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<50xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<50xf32>) -> tensor<50xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<50x768xf32>) outs(%init : tensor<50xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %o, %a : f32
    linalg.yield %s : f32
  } -> tensor<50xf32>
  %variance = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x, %sum : tensor<50x768xf32>, tensor<50xf32>) outs(%init : tensor<50xf32>) {
  ^bb0(%a: f32, %m: f32, %o: f32):
    %d = arith.subf %a, %m : f32
    %q = arith.mulf %d, %d : f32
    %s = arith.addf %o, %q : f32
    linalg.yield %s : f32
  } -> tensor<50xf32>
  %full = tensor.empty() : tensor<50x768xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum, %variance : tensor<50x768xf32>, tensor<50xf32>, tensor<50xf32>) outs(%full : tensor<50x768xf32>) {
  ^bb0(%a: f32, %m: f32, %v: f32, %o: f32):
    %d = arith.subf %a, %m : f32
    %q = arith.divf %d, %v : f32
    linalg.yield %q : f32
  } -> tensor<50x768xf32>
  return %y : tensor<50x768xf32>
}"""


def only_template(mlir: str, folder: Path, *flags: str) -> tuple[ScheduleTemplate, Path]:
    """The template of a module's single dispatch, and the configured program."""
    (source := folder / "model.mlir").write_text(mlir)
    flow = folder / "flow.mlirbc"
    compile_checked(
        str(source), *CPU.compile_flags, *flags, "--compile-to=flow", "--emit-mlir-bytecode", "-o", str(flow)
    )
    [task] = (task.tunable for task in extract_tasks(flow, CPU, folder / "tasks"))
    return task.templates[0], task.configured


def test_every_result_of_an_op_has_its_buffer(tmp_path):
    template, configured = only_template(TWO_RESULTS, tmp_path)
    nest = read_nest(tile_symbolically(template, configured), template)
    last = [stage for _, stage in nest.stages()][-1]
    first, second = (access.buffer for access in last.accesses if access.writes)
    assert first != second and not first.is_temporary and not second.is_temporary
    assert first.shape == second.shape == (50, 96)


def test_sums_that_start_from_one_fill_have_buffers_of_their_own(tmp_path):
    template, configured = only_template(NORMALISED, tmp_path, "--iree-opt-level=O3")
    nest = read_nest(tile_symbolically(template, configured, structures(template)[0]), template)
    fill, total, variance, quotient = (stage for _, stage in nest.stages())
    assert fill.accesses[0].buffer == total.accesses[1].buffer == variance.accesses[1].buffer
    assert variance.accesses[2].buffer != fill.accesses[0].buffer
    assert [a.buffer for a in quotient.accesses[1:3]] == [total.accesses[1].buffer, variance.accesses[2].buffer]
    assert [a.buffer.is_temporary for a in quotient.accesses] == [False, True, True, False]

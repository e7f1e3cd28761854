"""Plans: every sketch is measured once, in as few models as there can be, and the best of what is known is chosen."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from configured import CPU, compile_checked
from hypothesis import given
from hypothesis import strategies as st
from ops import strided_1x1
from programs import preprocess

from felix_mlir.cost import Machine, MachineRates, read_machine
from felix_mlir.features import MachineLimits
from felix_mlir.sketches import (
    AS_IT_IS,
    LAYOUTS,
    SPEC_FLAG,
    Layout,
    best_plan,
    chosen_sketches,
    estimated_s,
    launches_by_root,
    plans,
    read_roots,
    rewrite_script,
    root_options,
    sketches_of,
)
from felix_mlir.target import parse_target


@dataclass(frozen=True)
class FakeRoot:
    id: str
    locations: tuple[str, ...] = ("loc(unknown)",)


@dataclass(frozen=True)
class FakeSketch:
    name: str
    layout: Layout


@st.composite
def options(draw):
    found = []
    for index in range(draw(st.integers(1, 4))):
        layouts = draw(st.lists(st.sampled_from(list(Layout)), max_size=5))
        sketches = [FakeSketch(f"s{number}", layout) for number, layout in enumerate(layouts)]
        seconds = {name: draw(st.floats(1e-6, 1.0)) for name in (AS_IT_IS, *(sketch.name for sketch in sketches))}
        found.append(root_options(FakeRoot(f"r{index}"), sketches, seconds, draw(st.integers(1, 4)), 6.0))
    return found


@given(options(), st.sampled_from(LAYOUTS))
def test_plans_measure_every_sketch_in_as_few_models_as_there_can_be(found, layout):
    made = plans(found, layout)
    option_of = {option.root.id: option for option in found}
    assert len(made) == max(len(option.order[layout]) for option in found)
    for option in found:
        assert {plan[option.root.id] for plan in made} == set(option.order[layout])
        for plan in made:
            for root, sketch in chosen_sketches(found, plan):
                assert plan[root.id] == sketch.name
                if sketch.layout not in (layout, Layout.ANY):
                    assert layout is Layout.KEPT
                    own = [s.name for s in option_of[root.id].sketches.values() if s.layout is not Layout.CHANNELS_LAST]
                    seconds = option_of[root.id].seconds
                    assert all(2 * seconds[sketch.name] <= seconds[name] for name in (AS_IT_IS, *own))


@given(options(), st.sampled_from(LAYOUTS), st.data())
def test_the_best_plan_has_each_ops_fastest_known_sketch(found, layout, data):
    seconds = {
        (option.root.id, name): data.draw(st.floats(1e-6, 1.0) | st.just(float("inf")))
        for option in found
        for name in option.order[layout]
        if data.draw(st.booleans())
    }
    plan = best_plan(found, layout, seconds)
    for option in found:
        id_, infinity = option.root.id, float("inf")
        got = seconds.get((id_, plan[id_]), infinity)
        assert got == min(seconds.get((id_, name), infinity) for name in option.order[layout])
        if not any(id_ == known for known, _ in seconds):
            assert plan[id_] == option.order[layout][0]


def test_an_op_that_can_be_channels_last_is_never_as_it_is_between_channels_last_neighbours():
    sketches = [FakeSketch("channels-last", Layout.CHANNELS_LAST), FakeSketch("kept", Layout.KEPT)]
    option = root_options(FakeRoot("r"), sketches, {"channels-last": 1.0, "kept": 1.0, AS_IT_IS: 0.5}, 4, 6.0)
    assert option.order[Layout.CHANNELS_LAST] == ("channels-last",)
    assert option.order[Layout.KEPT] == (AS_IT_IS, "kept")


def test_an_op_may_transpose_for_itself_where_its_own_layout_is_far_slower():
    sketches = [FakeSketch("taps", Layout.CHANNELS_LAST), FakeSketch("near", Layout.CHANNELS_LAST)]
    option = root_options(FakeRoot("r"), sketches, {"taps": 0.1, "near": 0.6, AS_IT_IS: 1.0}, 4, 20.0)
    assert option.order[Layout.KEPT] == ("taps", AS_IT_IS)


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_80"])
def test_estimates_tell_scalar_code_and_wasted_arithmetic(tmp_path, target):
    """On known rates: a strided 1x1 convolution as a product beats the op, whose accesses are not contiguous."""
    machine = read_machine(parse_target(target)) if target != "cpu" else _machine()
    model = tmp_path / "model.mlir"
    model.write_text(strided_1x1(256, 512))
    (root,) = read_roots(preprocess(model, tmp_path / "model.mlirbc"))
    as_it_is, seconds = estimated_s(root, sketches_of(root, 32), machine)
    assert seconds["gemm-channels-first"] < as_it_is
    assert seconds["gemm-channels-first"] < seconds["gemm"]
    assert all(value > machine.rates.launch_s for value in seconds.values())


def _machine():

    limits = MachineLimits(2, 32, 16, 64, 32 << 10, 1 << 20, 32 << 20)
    flops = dict.fromkeys(("f64", "f32", "f16", "bf16", "i8", "i32"), 5e10)
    return Machine(limits, MachineRates(flops, 2e11, 1e11, 5e10, 1e10, 2e10, 2e-6))


CHAIN = """
func.func @main(%x: tensor<1x8x20x20xf32>, %w: tensor<8x8x3x3xf32>, %v: tensor<8x8x3x3xf32>) -> tensor<1x8x16x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x8x18x18xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x8x18x18xf32>) -> tensor<1x8x18x18xf32>
  %y = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<1x8x20x20xf32>, tensor<8x8x3x3xf32>)
    outs(%f : tensor<1x8x18x18xf32>) -> tensor<1x8x18x18xf32>
  %g = tensor.empty() : tensor<1x8x16x16xf32>
  %h = linalg.fill ins(%zero : f32) outs(%g : tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32>
  %r = linalg.conv_2d_nchw_fchw ins(%y, %v : tensor<1x8x18x18xf32>, tensor<8x8x3x3xf32>)
    outs(%h : tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32>
  return %r : tensor<1x8x16x16xf32>
}
"""


def test_every_launch_belongs_to_the_root_ops_it_computes(tmp_path):
    """With and without rewrites, all launches of two convolutions are theirs, and each has some."""
    source = tmp_path / "model.mlir"
    source.write_text(CHAIN)
    roots = read_roots(preprocess(source, tmp_path / "model.mlirbc"))
    assert [len(root.locations) for root in roots] == [1, 1]
    for names in ((), ("channels-last", "gemm")):
        chosen = [
            (root, next(sketch for sketch in sketches_of(root, 32) if sketch.name == name))
            for root, name in zip(roots, names, strict=False)
        ]
        (script := tmp_path / "rewrites.mlir").write_text(rewrite_script(chosen))
        flags = (f"{SPEC_FLAG}={script}",) if chosen else ()
        flow = tmp_path / "flow.mlirbc"
        compile_checked(
            str(source), *CPU.compile_flags, *flags, "--compile-to=flow", "--emit-mlir-bytecode", "-o", str(flow)
        )
        parts = launches_by_root(flow, roots)
        assert parts.keys() == {root.id for root in roots}
        totals: dict[str, float] = {}
        for of_root in parts.values():
            for export, part in of_root.items():
                totals[export] = totals.get(export, 0.0) + part
        assert all(total == pytest.approx(1.0) for total in totals.values())

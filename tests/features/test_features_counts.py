"""Features against counting: what a formula says of a nest is what running its loops counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from feature_cases import MACHINE, SMALL_CACHES, program_of, random_knobs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interpreter import Interpreter
from nests import LEVELS, NAMED, Op, Operand, build_nest, shape_of
from random_nests import ops

from felix_mlir.features.compute import vector_loop
from felix_mlir.features.derive import derive_cpu_features, operands_of
from felix_mlir.features.program import Program


def check(op: Op, points: list[dict[str, int]]) -> None:
    nest = build_nest(op)
    _, stage = next(nest.stages())
    along = vector_loop(stage, operands_of(stage))
    program = program_of(op)
    shapes = {operand.name: shape_of(operand, op.extents, op.slack) for operand in op.operands}
    for knobs in points:
        values = program.exact(knobs, SMALL_CACHES)
        interpreter = Interpreter(op, knobs, SMALL_CACHES, shapes)
        counted = {f"op/{name}": value for name, value in interpreter.count(along).items()}
        counted |= {f"dispatch/{name}": value for name, value in interpreter.workgroups().items()}
        for name, value in counted.items():
            exact = values[name]
            assert exact == pytest.approx(value, rel=1e-12), f"{name} at {knobs}: {exact} is not {value}"
        # With windows, reuse by absent loops is less than all reuse, which is what would be counted.
        windowed = {o.name for o in op.operands if any(len(index) > 1 for index in o.index)}
        for name in values.keys() - counted.keys():
            parts = name.split("/")
            by_reuse = parts[-1].startswith("reuse_") and parts[1] in windowed
            assert by_reuse or name == "dispatch/allocated", f"nothing counts {name}"


@pytest.mark.parametrize("name", sorted(NAMED))
def test_features_of_named_ops_equal_counts(name):
    check(NAMED[name], random_knobs(NAMED[name], 4, seed=1))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ops(), st.integers(0, 1000))
def test_features_of_any_nest_equal_counts(op, seed):
    check(op, random_knobs(op, 3, seed))


@pytest.mark.parametrize("name", ["matmul", "conv_2d_strided", "depthwise_dilated"])
def test_shapes_stay_symbols_until_values_are_given(name):
    op = NAMED[name]
    nest = build_nest(op, symbolic_extents=True)
    program = Program([(f.name, f.expr) for f in derive_cpu_features(nest)], program_of(op).knobs)
    assert {f"E{i}" for i in range(len(op.extents))} <= set(program.shapes)
    points = np.array([[knobs[name] for name in program.knobs] for knobs in random_knobs(op, 20, seed=0)])
    shapes = {f"E{i}": extent for i, extent in enumerate(op.extents)}
    again = program.exact_matrix(points, {**MACHINE, **shapes})
    # A quotient of symbols may round in another order than one of numbers.
    np.testing.assert_allclose(again, program_of(op).exact_matrix(points, MACHINE), rtol=1e-14)


def test_the_way_a_loop_runs_through_a_buffer_does_not_matter():
    """A mirrored window touches as much as a plain one, with the same strides."""
    plain = NAMED["conv_2d_strided"]
    mirrored = [replace(o, index=tuple({k: -c for k, c in i.items()} for i in o.index)) for o in plain.operands]
    points = np.array([list(knobs.values()) for knobs in random_knobs(plain, 10, seed=0)])
    # Shapes of buffers come from the extents alone; build the nest of the plain op and turn its accesses around.
    nest = build_nest(plain)
    around, stage = next(nest.stages())
    turned = replace(
        stage,
        accesses=tuple(
            replace(access, indices=tuple((i, size - 1) for i, size in zip(o.index, access.buffer.shape, strict=True)))
            for access, o in zip(stage.accesses, mirrored, strict=True)
        ),
    )
    body: tuple = (turned,)
    for loop in reversed(around):
        body = (replace(loop, body=body),)
    features = derive_cpu_features(replace(nest, body=body))
    program = Program([(f.name, f.expr) for f in features], program_of(plain).knobs)
    np.testing.assert_array_equal(
        program.exact_matrix(points, MACHINE), program_of(plain).exact_matrix(points, MACHINE)
    )


def test_tiles_are_cut_where_nothing_divides():
    """The pieces of 50 tiled by 16 and then 6: 3 whole tiles of 6+6+4 and one of 2."""
    operand = Operand("t", ({0: 1},), is_output=True)
    op = Op((50,), "p", (operand,), (LEVELS[:2],))
    values = program_of(op).exact({"distribution_d0": 16, "cache_parallel_d0": 6}, MACHINE)
    assert values["op/cache_parallel/tiles"] == 3 * 3 + 1
    assert values["op/cache_parallel/cut_tiles"] == 3 + 1
    assert values["op/distribution/tiles"] == 4

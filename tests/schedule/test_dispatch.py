"""Reading dispatches: loops, extents and how the loops of different ops correspond."""

from __future__ import annotations

from math import prod

import pytest
from configured import configured_module
from hypothesis import given, settings
from hypothesis import strategies as st
from ops import KINDS, matmul

from felix_mlir.schedule import configured_functions, read_dispatch

FLOPS = {
    "matmul": 50 * 96 * 72,
    "batch_matmul": 12 * 50 * 50 * 64,
    "conv2d_nchw": 32 * 28 * 28 * 16 * 9,
    "conv2d_nhwc_strided": 28 * 28 * 24 * 16 * 9,
    "conv3d_ndhwc": 4 * 16 * 16 * 16 * 8 * 27,
    "depthwise_nchw": 48 * 28 * 28 * 9,
    "grouped": 4 * 16 * 28 * 28 * 8 * 9,
    "pool_nhwc_max": 28 * 28 * 32 * 9,
    "reduction": 100 * 197,
    "elementwise": 197 * 1000,
}


@pytest.mark.parametrize(("kind", "points"), FLOPS.items())
def test_the_root_ops_iteration_space_is_the_ops_own(tasks_of, kind, points):
    assert prod(tasks_of(kind).root.iteration_space) == points


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_op_kind_is_tunable(tasks_of, kind):
    tasks = tasks_of(kind).tasks
    assert [task.reason for task in tasks] == [""] * len(tasks)


def test_ops_connected_by_a_tensor_share_dimensions(tasks_of):
    dispatch = tasks_of("matmul").root.tunable.dispatch
    fill, root, relu = dispatch.ops
    assert root.dims == (0, 1, 2)
    assert fill.dims == relu.dims == (0, 1)
    assert fill.feeds_root
    assert not relu.feeds_root


def test_a_dimension_another_op_reads_again_is_its_own(tasks_of):
    """The row reduction's loop and the elementwise loop over the same row are tiled independently."""
    *_, reduction, subtract = tasks_of("layer_norm").root.tunable.dispatch.ops
    assert reduction.is_root
    assert subtract.dims[0] == reduction.dims[0]
    assert subtract.dims[1] != reduction.dims[1]


@settings(max_examples=4, deadline=None)
@given(m=st.integers(2, 70), n=st.integers(2, 70), k=st.integers(2, 70))
def test_matmul_extents_are_read_from_any_shape(m, n, k):
    module = configured_module(matmul(m, n, k))
    functions = configured_functions(module.operation)
    dispatches = [read_dispatch(function) for function in functions.values()]
    assert any(prod(d.root.extents) == m * n * k for d in dispatches)

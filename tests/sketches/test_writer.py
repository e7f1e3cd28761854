"""What the writer writes is MLIR, and changes of shape keep the order of elements."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from iree.compiler import ir

from felix_mlir.sketches.writer import Tensor, Writer, matching_blocks

SHAPES = st.lists(st.sampled_from([1, 1, 2, 3, 4, 6]), max_size=5)


@st.composite
def reshapes(draw):
    """Two shapes of equally many elements: the same factors, grouped in two ways, with ones among them."""
    factors = draw(st.lists(st.sampled_from([2, 2, 3, 5]), max_size=6))
    shapes = []
    for _ in range(2):
        ends = sorted(draw(st.sets(st.integers(1, max(1, len(factors) - 1)), max_size=3)) | {len(factors)})
        shape = [math.prod(factors[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]
        for place in draw(st.lists(st.integers(0, len(shape)), max_size=3)):
            shape.insert(place, 1)
        shapes.append(shape if draw(st.booleans()) or math.prod(shape) > 1 else [])
    return shapes


def verify(writer, result):
    with ir.Context() as context:
        assert ir.Module.parse(writer.function("f", result), context).operation.verify()


@given(reshapes())
def test_matching_blocks_cover_both_shapes_in_order(shapes):
    before, after = shapes
    blocks = matching_blocks(before, after)
    assert [dim for ours, _ in blocks for dim in ours] == list(range(len(before)))
    assert [dim for _, theirs in blocks for dim in theirs] == list(range(len(after)))
    assert all(math.prod(before[d] for d in ours) == math.prod(after[d] for d in theirs) for ours, theirs in blocks)


@given(reshapes())
def test_reshape_is_valid(shapes):
    writer = Writer([Tensor(tuple(shapes[0]), "f32")])
    result = writer.reshape(writer.parameters[0], shapes[1])
    assert result.shape == tuple(shapes[1])
    verify(writer, result)


@given(SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), st.permutations(range(len(shape))))))
def test_transpose_moves_elements_only_if_their_order_changes(drawn):
    shape, permutation = drawn
    writer = Writer([Tensor(tuple(shape), "f32")])
    result = writer.transpose(writer.parameters[0], permutation)
    text = writer.function("f", result)
    elements = np.arange(math.prod(shape)).reshape(shape).transpose(permutation)
    assert result.shape == elements.shape
    assert ("linalg.transpose" in text) == (elements.ravel().tolist() != list(range(elements.size)))
    verify(writer, result)


@given(
    st.tuples(*[st.integers(1, 20)] * 2),
    st.lists(st.sampled_from([1, 2, 8]), min_size=1, max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_pack_and_unpack_are_valid(shape, tiles, swapped, batched):
    type_ = Tensor((*([3] if batched else []), *shape), "f32")
    last = len(type_.shape) - 1
    dims = (last, last - 1) if swapped else (last - 1, last)
    writer = Writer([type_])
    packed = writer.pack(writer.parameters[0], dims, tiles)
    result = writer.unpack(packed, type_, dims, tiles)
    assert ("padding_value" in writer.function("f", result)) == any(
        type_.shape[dim] % tile for dim, tile in zip(dims, tiles, strict=False)
    )
    verify(writer, result)


def test_zeros_are_not_moved():
    """Zeros in another shape are new zeros, so that the compiler fuses them with what adds to them."""
    writer = Writer([])
    zeros = writer.zeros(Tensor((3, 5), "f32"))
    moved = [writer.transpose(zeros, [1, 0]), writer.reshape(zeros, [15]), writer.pad(zeros, [0, 0], [1, 0]),
             writer.pack(zeros, (0, 1), (2, 2))]  # fmt: skip
    text = writer.function("f", moved[-1])
    assert text.count("linalg.fill") == 1 + len(moved)
    assert not any(op in text for op in ("linalg.transpose", "collapse_shape", "tensor.pad", "linalg.pack"))
    verify(writer, moved[-1])

"""Random inputs for models that bring none."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix_mlir.errors import RequestError
from felix_mlir.importers import random_inputs

FLOATS = [np.dtype(t) for t in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)]
INTEGERS = [np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.bool_)]
SHAPES = st.lists(st.integers(1, 4), max_size=3).map(tuple)


@given(st.lists(st.tuples(SHAPES, st.sampled_from(FLOATS + INTEGERS)), max_size=4), st.integers(0, 2**32))
def test_types_values_and_repetition(types: list[tuple[tuple[int, ...], np.dtype]], seed: int) -> None:
    arrays = random_inputs(types, seed)
    assert [(array.shape, array.dtype) for array in arrays] == types
    for array, again in zip(arrays, random_inputs(types, seed), strict=True):
        assert array.astype(np.float64).any()
        np.testing.assert_array_equal(array, again)
        if array.dtype in INTEGERS:
            assert set(np.unique(array).tolist()) <= {0, 1}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats_are_standard_normal(dtype: np.dtype) -> None:
    (array,) = random_inputs([((100, 100), dtype)], 3)
    wide = array.astype(np.float64)
    assert abs(wide.mean()) < 0.05
    assert abs(wide.std() - 1) < 0.05


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_take_both_values(dtype: np.dtype) -> None:
    (array,) = random_inputs([((1000,), dtype)], 3)
    assert 0.4 < array.astype(np.float64).mean() < 0.6


def test_arrays_and_seeds_differ() -> None:
    types = [((8,), np.dtype(np.float32))] * 2
    first, second = random_inputs(types, 0)
    (other, _) = random_inputs(types, 1)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_no_elements() -> None:
    (array,) = random_inputs([((0, 3), np.dtype(np.int32))], 0)
    assert array.shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.complex64, ml_dtypes.float8_e4m3fn, "S3"])
def test_other_types(dtype: object) -> None:
    with pytest.raises(RequestError, match=r"^no random inputs of type .*: give the model example inputs$"):
        random_inputs([((2,), np.dtype(dtype))], 0)  # type: ignore[call-overload]

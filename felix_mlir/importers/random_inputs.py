"""Inputs for programs that bring none."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from felix_mlir.errors import RequestError


def random_inputs(types: Sequence[tuple[tuple[int, ...], np.dtype]], seed: int) -> tuple[np.ndarray, ...]:
    """Return one array for each (shape, dtype), the same ones for the same `types` and `seed`.

    Floats (bf16 included) are standard normal, booleans and integers are 0 or 1, and no array that has
    elements is all zeros. Raises RequestError for a dtype that is none of these.
    """
    generator = np.random.default_rng(seed)
    return tuple(_random_array(generator, shape, np.dtype(dtype)) for shape, dtype in types)


def _random_array(generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "f" or dtype == ml_dtypes.bfloat16:
        return np.asarray(generator.standard_normal(shape), dtype)
    if dtype.kind not in "biu":
        raise RequestError(f"no random inputs of type {dtype}: give the model example inputs")
    # An integer input may index a table, a compiled gather does not check its indices, and tables as small as
    # two rows exist (the segment embedding of BERT).
    array = np.asarray(generator.integers(0, 2, shape), dtype)
    if array.size and not array.any():
        array.flat[generator.integers(array.size)] = 1
    return array

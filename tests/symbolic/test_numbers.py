"""Tiling changes no number: tiled and untiled functions, run by upstream MLIR, agree."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ops import KINDS
from stock_mlir import run_function

from felix_mlir.symbolic import payload, tile

# The JIT lacks the runtime functions of half precision.
RUNNABLE = sorted(KINDS.keys() - {"matmul_f16"})


def shapes(text: str) -> list[list[int]]:
    return [[int(size) for size in shape.split("x")[:-1]] for shape in re.findall(r"tensor<([^>]*)>", text)]


@pytest.mark.parametrize("kind", RUNNABLE)
def test_tiled_function_computes_what_the_untiled_one_does(drawn, kind):
    for found in drawn(kind, 2):
        untiled = payload(found.task.configured)
        arguments, results = re.search(r"func\.func @[^(]*\((.*)\) -> \(?(.*?)\)? \{", untiled).groups()
        rng = np.random.default_rng(3)
        inputs = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes(arguments)]
        expected = [np.zeros(shape, np.float32) for shape in shapes(results)]
        run_function(untiled, inputs, expected)
        assert all(np.isfinite(array).all() and array.any() for array in expected)
        for values in found.candidates:
            got = [np.full_like(array, np.nan) for array in expected]
            tiled = tile(found.template, found.task.configured, values)
            run_function(tiled.operation.get_asm(use_local_scope=True), inputs, got)
            for mine, theirs in zip(got, expected, strict=True):
                # Splitting a reduction changes the order of additions.
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())

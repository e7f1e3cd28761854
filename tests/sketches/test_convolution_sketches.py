"""Every sketch of a convolution or pooling replaces it and computes the same."""

from __future__ import annotations

import numpy as np
from convolutions import generic_cases, named_cases, transposed_cases
from programs import check_sketches

from felix_mlir.sketches import sketches_of

GEMMS = {"gemm", "gemm-channels-first"}
TAPS = {"taps", "taps-channels-first"}


def sketches(root):
    """All sketches; those over packed tiles for a third of the ops, as the product itself is tested elsewhere."""
    packed = int(root.id, 16) % 3 == 0
    return [sketch for sketch in sketches_of(root, 32) if packed or not sketch.name.endswith("-packed")]


def check(cases, folder):
    """Check all sketches of cases; returns the names of those there were."""
    return {name for names in check_sketches(cases, sketches, folder) for name in names}


def test_named_ops(tmp_path):
    names = check(named_cases(np.random.default_rng(1)), tmp_path)
    assert names == {"channels-last", *GEMMS, *(f"{name}-packed" for name in GEMMS), "accumulated", *TAPS}


def test_generic_ops(tmp_path):
    """Layouts without a name, several loops of a role, narrow types."""
    names = check(generic_cases(np.random.default_rng(2)), tmp_path)
    assert names == {"channels-last", *GEMMS, *(f"{name}-packed" for name in GEMMS), "accumulated", *TAPS}


def test_transposed_convolutions(tmp_path):
    """Kernels that strides do not divide, zeros before and behind, residues that meet no filter element."""
    names = check(transposed_cases(np.random.default_rng(3)), tmp_path)
    assert names == {"phases", "phases-gemm", "phases-gemm-packed"}

"""Minimal filtering of 3x3 convolutions: close, not equal, and only where it is asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from convolutions import NAMED, Shape, convolution, pooling
from programs import compile_originals, module, preprocess, sketch_errors

from felix_mlir.sketches import read_roots, sketches_of

KERNEL = {"h": 3, "w": 3}


def shapes():
    """Odd and even outputs, one and several images, unread elements, and layouts without a name."""
    return [
        Shape(
            NAMED["conv_2d_nchw_fchw"],
            {"n": 1, "c": 19, "f": 5, "h": 6, "w": 8},
            KERNEL,
            unread=1,
            name="conv_2d_nchw_fchw",
        ),
        Shape(("wbchn", "hfcw", "nfbwh"), {"n": 2, "b": 2, "c": 7, "f": 4, "h": 1, "w": 7}, KERNEL),
    ]


def winograd(root):
    return [sketch for sketch in sketches_of(root, 32, inexact=True) if not sketch.is_exact]


def test_results_are_close(tmp_path):
    """Within a thousandth of the largest value."""
    cases = [convolution("", shape, bias=index != 1) for index, shape in enumerate(shapes())]
    originals = compile_originals(cases, tmp_path)
    for original, errors in zip(originals, sketch_errors(originals, winograd, tmp_path), strict=True):
        assert set(errors) == {"winograd", "winograd-packed"}
        assert max(errors.values()) <= 1e-3 * np.abs(original.result).max()


def test_other_ops_have_none(tmp_path):
    plain = Shape(("chw", "fchw", "fhw"), {"c": 2, "g": 2, "f": 2, "h": 4, "w": 4}, KERNEL)
    cases = [
        convolution("", replace(plain, stride={"h": 2})),
        convolution("", replace(plain, dilation={"w": 2})),
        convolution("", replace(plain, kernel={"h": 3, "w": 2})),
        convolution("", replace(plain, layouts=("gchw", "gfchw", "gfhw"))),
        convolution("", plain, "f16", "f32"),
        pooling("", replace(plain, layouts=("chw", "hw", "chw")), "sum"),
        convolution("", plain),
    ]
    source = tmp_path / "model.mlir"
    source.write_text(module(cases))
    roots = read_roots(preprocess(source, tmp_path / "model.mlirbc"))
    assert [bool(winograd(root)) for root in roots] == [False] * (len(cases) - 1) + [True]
    assert all(sketch.is_exact for root in roots for sketch in sketches_of(root, 32))

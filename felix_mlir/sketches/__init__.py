"""Other structures for the root ops of a model: what `iree-compile` computes before it forms dispatches.

A *root op* is a linalg op on tensors with a reduction, read from a model at the `preprocessing` phase. A *sketch* is a
function that computes the same in another way: another layout, matrix products over gathered columns, a sum of smaller
ops. Sketches are derived from indexing maps and iterator types, never from op names. What was chosen is written as a
transform script that a stock `iree-compile` applies itself.

Nothing here chooses, compiles or measures. `sketches_of` yields structures that may be slower than the op as it stands.
"""

from __future__ import annotations

from felix_mlir.passes.rewrites import SPEC_FLAG, replacement_symbol
from felix_mlir.sketches.attribution import launches_by_root
from felix_mlir.sketches.contraction import as_contraction
from felix_mlir.sketches.contraction_sketches import contraction_sketches
from felix_mlir.sketches.convolution import as_convolution
from felix_mlir.sketches.convolution_sketches import convolution_sketches
from felix_mlir.sketches.estimate import estimated_s
from felix_mlir.sketches.plan import (
    AS_IT_IS,
    LAYOUTS,
    Plan,
    RootOptions,
    best_plan,
    chosen_sketches,
    estimated_sum,
    plans,
    root_options,
)
from felix_mlir.sketches.products import products
from felix_mlir.sketches.rewrite import rewrite_script
from felix_mlir.sketches.root import RootOp, read_roots
from felix_mlir.sketches.sketch import Layout, Sketch
from felix_mlir.sketches.winograd import winograd_sketches

__all__ = [
    "AS_IT_IS",
    "LAYOUTS",
    "SPEC_FLAG",
    "Layout",
    "Plan",
    "RootOp",
    "RootOptions",
    "Sketch",
    "best_plan",
    "chosen_sketches",
    "estimated_s",
    "estimated_sum",
    "launches_by_root",
    "plans",
    "read_roots",
    "replacement_symbol",
    "rewrite_script",
    "root_options",
    "sketches_of",
]


def sketches_of(root: RootOp, vector_bytes: int, *, inexact: bool = False) -> list[Sketch]:
    """Return the other structures for `root`, each with a name of its own; none if nothing is known for the op.

    `vector_bytes` is the width of the target's vector registers. With `inexact` there are those whose rounding errors
    are larger than another order of additions makes them.
    """
    conv = as_convolution(root)
    if conv is not None:
        ways = products(vector_bytes)
        return [*convolution_sketches(conv, ways), *(winograd_sketches(conv, ways) if inexact else ())]
    contraction = as_contraction(root)
    return list(contraction_sketches(contraction, vector_bytes)) if contraction is not None else []

"""Contractions, matrix products of any number of loops, by the roles of their loops."""

from __future__ import annotations

from dataclasses import dataclass

from felix_mlir.sketches.loops import SortedLoops
from felix_mlir.sketches.root import RootOp


@dataclass(frozen=True)
class Contraction(SortedLoops):
    """A sum of products, its loops sorted by role.

    `batch` are loops of both inputs and the output, `m` of the output and input `lhs`, `n` of the output and input
    `rhs`, these in the output's order; `k` are the reduced loops, in the order of `lhs`. The inputs `lhs` and `rhs` are
    the op's first and second, or, if the output begins with a loop of the second, the other way around.
    """

    lhs: int
    rhs: int
    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]

    @property
    def matrix_shape(self) -> tuple[int, int, int]:
        """The extents M, N, K."""
        return self.extent(self.m), self.extent(self.n), self.extent(self.k)

    @property
    def is_plain(self) -> bool:
        """Whether a role has at most one loop, and all tensors are in the order of a named matrix product."""
        orders = ((self.lhs, (*self.batch, *self.m, *self.k)), (self.rhs, (*self.batch, *self.k, *self.n)),
                  (2, (*self.batch, *self.m, *self.n)))  # fmt: skip
        return (
            self.lhs == 0
            and max(map(len, (self.batch, self.m, self.n, self.k))) <= 1
            and all(self.loops_in_order(operand) == order for operand, order in orders)
        )


def as_contraction(root: RootOp) -> Contraction | None:
    """Sort the loops of an op by role; None if it is no contraction."""
    if not root.multiplies_and_adds or root.stuffing is not None or root.uses_a_loop_twice:
        return None
    if any(index.loop is None for indices in root.indices for index in indices):
        return None
    a, b, out = (root.loops_of(operand) for operand in range(3))
    # A loop of one input alone is a sum over that input before the product; one of the output alone repeats it.
    if not (a & b) | out == a | b == out | set(root.reduction_loops) or out & set(root.reduction_loops):
        return None
    order = [index.loop for index in root.indices[2] if index.loop is not None]
    # Of a vector times a matrix the vector stays first: swapped, the matrix would have to be transposed.
    sides = ["m" if loop in a else "n" for loop in order if root.extents[loop] > 1 and (loop in a) != (loop in b)]
    lhs, rhs = (1, 0) if "m" in sides[1:] and sides[0] == "n" else (0, 1)
    ours, theirs = (a, b) if lhs == 0 else (b, a)
    return Contraction(
        root, lhs, rhs,
        batch=tuple(loop for loop in order if loop in ours and loop in theirs),
        m=tuple(loop for loop in order if loop not in theirs),
        n=tuple(loop for loop in order if loop not in ours),
        k=tuple(index.loop for index in root.indices[lhs] if index.loop is not None and index.loop not in out),
    )  # fmt: skip

"""Nests drawn by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st
from nests import PARALLEL_LEVELS, REDUCTION_LEVELS, Op, Operand


@st.composite
def ops(draw):
    """Nests of 1 to 4 loops with arbitrary affine accesses and tile levels."""
    rank = draw(st.integers(1, 4))
    extents = tuple(draw(st.integers(1, {1: 40, 2: 14, 3: 8, 4: 5}[rank])) for _ in range(rank))
    kinds = "".join(draw(st.sampled_from("pr")) for _ in range(rank))
    operands = []
    for number in range(draw(st.integers(1, 3))):
        order = draw(st.permutations(range(rank)))
        index: list[dict[int, int]] = []
        while order and draw(st.integers(0, 4)):
            if len(order) > 1 and draw(st.integers(0, 2)) == 0:
                index.append({order.pop(): draw(st.integers(1, 2)), order.pop(): draw(st.integers(1, 2))})
            elif draw(st.integers(0, 5)) == 0:
                index.append({})
            else:
                index.append({order.pop(): draw(st.sampled_from((1, 1, 2, 3, 20)))})
        element = draw(st.sampled_from((1, 2, 4, 8)))
        operands.append(Operand(f"t{number}", tuple(index), is_output=number == 0, element_bytes=element))
    levels = tuple(
        tuple(level for level in (PARALLEL_LEVELS if kind == "p" else REDUCTION_LEVELS) if draw(st.booleans()))
        for kind in kinds
    )
    return Op(extents, kinds, tuple(operands), levels, slack=draw(st.integers(0, 2)))

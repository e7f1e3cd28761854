"""What ops whose loops were sorted by role share: bringing their tensors to an order of loops, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from felix_mlir.sketches.root import RootOp
from felix_mlir.sketches.writer import Value, Writer


@dataclass(frozen=True)
class SortedLoops:
    """A root op with two inputs; all dimensions of its second input and its output are loops as they stand."""

    root: RootOp

    def extent(self, loops: Sequence[int]) -> int:
        return math.prod(self.sizes(loops))

    def sizes(self, loops: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.root.extents[loop] for loop in loops)

    def loops_in_order(self, operand: int) -> tuple[int, ...]:
        """The loop of each dimension of an operand; raises ValueError where one is a window."""
        return tuple(_plain(index.loop) for index in self.root.indices[operand])

    def output_loops(self) -> tuple[int, ...]:
        """The loop of each output dimension."""
        return self.loops_in_order(-1)

    def operand_as(self, writer: Writer, operand: int, loops: Sequence[int]) -> Value:
        """Transpose an input to the order of `loops`."""
        have = self.loops_in_order(operand)
        return writer.transpose(writer.parameters[operand], [have.index(loop) for loop in loops])

    def init_as(self, writer: Writer, loops: Sequence[int]) -> Value:
        """Return what the op adds to, in the order of `loops`."""
        if self.root.adds_to_zero:
            return writer.zeros(self.root.output.of_shape(self.sizes(loops)))
        have = self.output_loops()
        return writer.transpose(writer.parameters[-1], [have.index(loop) for loop in loops])

    def output_from(self, writer: Writer, value: Value, loops: Sequence[int]) -> Value:
        """Transpose a tensor in the order of `loops` to the output's layout."""
        return writer.transpose(value, [list(loops).index(loop) for loop in self.output_loops()])


def _plain(loop: int | None) -> int:
    if loop is None:
        raise ValueError("a window where a plain loop was expected")
    return loop

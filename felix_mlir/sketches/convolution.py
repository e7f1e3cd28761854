"""Convolutions and poolings of any rank and layout, by the roles of their loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from felix_mlir.sketches.loops import SortedLoops
from felix_mlir.sketches.root import RootOp
from felix_mlir.sketches.writer import Value, Writer


@dataclass(frozen=True)
class Window:
    """One spatial dimension: loops of output and filter, which read the input at spatial*stride + kernel*dilation."""

    spatial: int
    kernel: int
    stride: int
    dilation: int


@dataclass(frozen=True)
class Convolution(SortedLoops):
    """A sum (or maximum) over windows, its loops sorted by role, each list in the order the input has them.

    `groups` are loops of input, filter and output (the channels of a depthwise convolution), `channels_in` reduced
    loops of input and filter, `channels_out` loops of filter and output. A pooling has no filter elements: its
    channels are `groups` that the filter does not have.
    """

    windows: tuple[Window, ...]
    batch: tuple[int, ...]
    groups: tuple[int, ...]
    channels_in: tuple[int, ...]
    channels_out: tuple[int, ...]

    @property
    def is_pooling(self) -> bool:
        return not self.root.multiplies_and_adds

    @property
    def spatial(self) -> tuple[int, ...]:
        return tuple(window.spatial for window in self.windows)

    @property
    def kernel(self) -> tuple[int, ...]:
        return tuple(window.kernel for window in self.windows)

    @property
    def channels_last_loops(self) -> tuple[int, ...]:
        """Loops of the output in the order of a channels-last tensor."""
        return (*self.batch, *self.spatial, *self.groups, *self.channels_out)

    @property
    def is_channels_last(self) -> bool:
        """Whether the input has its channels behind the spatial dimensions, and the output too."""
        order = self.input_roles()
        return order == sorted(order) and self.output_loops() == self.channels_last_loops

    @property
    def input_loops(self) -> tuple[int, ...]:
        """The loop of each input dimension, of a window that of the output."""
        return tuple(index.terms[0][0] for index in self.root.indices[0])

    def input_roles(self) -> list[int]:
        """A number for each input dimension that sorts it into channels-last order."""
        order = [*self.batch, *self.spatial, *self.groups, *self.channels_in]
        return [order.index(loop) for loop in self.input_loops]

    def input_channels_last(self, writer: Writer, value: Value) -> Value:
        """Transpose the input to [batch, spatial, groups, channels in]."""
        return writer.transpose(value, _argsort(self.input_roles()))

    def filter_as(self, writer: Writer, loops: Sequence[int]) -> Value:
        """Transpose the filter to the order of `loops`."""
        return self.operand_as(writer, 1, loops)


def as_convolution(root: RootOp) -> Convolution | None:
    """Sort the loops of an op by role; None if it is no convolution or pooling."""
    if len(root.tensors) != 3 or root.uses_a_loop_twice:
        return None
    if any(index.loop is None for operand in root.indices[1:] for index in operand):
        return None
    reduced = frozenset(root.reduction_loops)
    x, w, y = (root.loops_of(operand) for operand in range(3))
    windows: list[Window] = []
    for index in root.indices[0]:
        if index.loop is not None:
            continue
        spatial = [(loop, factor) for loop, factor in index.terms if loop not in reduced]
        kernel = [(loop, factor) for loop, factor in index.terms if loop in reduced]
        if len(spatial) != 1 or len(kernel) != 1:
            return None
        windows.append(Window(spatial[0][0], kernel[0][0], spatial[0][1], kernel[0][1]))
    if not windows or not all(window.kernel in w and window.spatial in y for window in windows):
        return None
    in_windows = {loop for window in windows for loop in (window.spatial, window.kernel)}
    plain = [index.loop for index in root.indices[0] if index.loop is not None]
    if root.multiplies_and_adds:
        batch = tuple(loop for loop in plain if loop in y and loop not in w)
        groups = tuple(loop for loop in plain if loop in y and loop in w)
        channels_in = tuple(loop for loop in plain if loop in reduced)
        if not set(channels_in) <= w:
            return None
    else:
        # The filter of a pooling gives the window's size; its elements are not read.
        if w != frozenset(window.kernel for window in windows):
            return None
        kept = [loop for loop in plain if loop in y]
        batch, groups = tuple(kept[:1]) if len(kept) > 1 else (), tuple(kept[1:] if len(kept) > 1 else kept)
        channels_in = ()
    channels_out = tuple(
        loop for loop in (index.loop for index in root.indices[2]) if loop is not None and loop in w and loop not in x
    )
    kernel = [window.kernel for window in windows]
    covered = {*in_windows, *batch, *groups, *channels_in, *channels_out}
    if covered != set(range(len(root.extents))) or reduced != frozenset([*channels_in, *kernel]):
        return None
    # Filters that differ from place to place are none of a convolution.
    if w != frozenset([*kernel, *(groups if root.multiplies_and_adds else ()), *channels_in, *channels_out]):
        return None
    return Convolution(root, tuple(windows), batch, groups, channels_in, channels_out)


def _argsort(keys: Sequence[int]) -> list[int]:
    return sorted(range(len(keys)), key=keys.__getitem__)

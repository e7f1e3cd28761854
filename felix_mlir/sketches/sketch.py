"""A sketch: another structure for one root op, as a function that replaces it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from felix_mlir.sketches.writer import Value, Writer


class Layout(Enum):
    """The layout of activations a sketch wants its neighbours in: transposes to another one are its cost."""

    ANY = "any-layout"
    KEPT = "layout-kept"
    CHANNELS_LAST = "channels-last"


@dataclass(frozen=True)
class Sketch:
    """One way to compute a root op: what `writer` wrote, yielding `result`.

    It equals the op up to the order of floating-point additions, unless `is_exact` is false.
    """

    name: str
    writer: Writer
    result: Value
    layout: Layout = Layout.ANY
    is_exact: bool = True

    def function(self, symbol: str) -> str:
        """Return the replacement as MLIR; its arguments are those of the root op's pattern."""
        return self.writer.function(symbol, self.result)

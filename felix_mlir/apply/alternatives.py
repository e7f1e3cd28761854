"""Ways to compile a whole model, tried before any tile size is."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


@dataclass(frozen=True)
class Alternative:
    """`flags` are iree-compile's and apply to the whole compilation.

    `packs` says that operands of contractions are repacked at compile time (data tiling). Their layouts are decided
    after dispatches are formed, so these dispatches cannot be isolated and tuned.
    """

    name: str
    flags: tuple[str, ...]
    packs: bool = False


def _preprocess(*passes: str) -> tuple[str, ...]:
    # Nested in util.func: in func.func these passes silently do nothing.
    return (f"--iree-preprocessing-pass-pipeline=builtin.module(util.func({','.join(passes)}))",)


_CHANNELS_LAST = "iree-preprocessing-convert-conv-to-channels-last"
_IMG2COL = "iree-global-opt-convert-conv2d-to-img2col"

_LAYOUTS = (
    Alternative("default", ()),
    Alternative("channels-last", _preprocess(_CHANNELS_LAST)),
    Alternative("channels-last+img2col", _preprocess(_CHANNELS_LAST, _IMG2COL)),
    Alternative("O3", ("--iree-opt-level=O3",)),
)
_DATA_TILING = (Alternative("", ()), Alternative("data-tiling", ("--iree-opt-data-tiling",), packs=True))

# The most promising first: a short budget may end before the list does.
ALTERNATIVES: tuple[Alternative, ...] = tuple(
    Alternative(
        "+".join(part.name for part in (layout, tiling) if part.name),
        (*layout.flags, *tiling.flags),
        tiling.packs,
    )
    for layout, tiling in itertools.product(_LAYOUTS, _DATA_TILING)
)
DEFAULT = ALTERNATIVES[0]


def alternative_named(name: str) -> Alternative:
    """Return the alternative called `name`; raises KeyError."""
    return {alternative.name: alternative for alternative in ALTERNATIVES}[name]

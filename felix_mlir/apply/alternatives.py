"""Ways to compile a whole model, tried before any tile size is."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, replace

from felix_mlir.passes.rewrites import Rewrites


@dataclass(frozen=True)
class Alternative:
    """`flags` are iree-compile's and apply to the whole compilation, `rewrites` change single ops.

    `packs` says that operands of contractions are repacked at compile time (data tiling). Their layouts are decided
    after dispatches are formed, so these dispatches cannot be isolated and tuned.
    """

    name: str
    flags: tuple[str, ...]
    packs: bool = False
    rewrites: Rewrites | None = None

    @property
    def key(self) -> str:
        """The name, made unique: what is called the same can rewrite ops in different ways."""
        if self.rewrites is None:
            return self.name
        return f"{self.name}-{hashlib.sha256(self.rewrites.script.encode()).hexdigest()[:8]}"


DEFAULT = Alternative("default", ())

_LEVELS = (Alternative("", ()), Alternative("O3", ("--iree-opt-level=O3",)))
_DATA_TILING = (Alternative("", ()), Alternative("data-tiling", ("--iree-opt-data-tiling",), packs=True))


def variants(structure: Alternative) -> tuple[Alternative, ...]:
    """Return an alternative and the other ways to compile what its rewrites leave, the most promising first."""
    found: list[Alternative] = []
    for level, tiling in itertools.product(_LEVELS, _DATA_TILING):
        name = "+".join(part.name for part in (structure, level, tiling) if part.name)
        name = name.removeprefix(f"{DEFAULT.name}+")
        flags = (*structure.flags, *level.flags, *tiling.flags)
        found.append(replace(structure, name=name, flags=flags, packs=structure.packs or tiling.packs))
    return (structure, *found[1:])

"""Programs of the nests of `nests` and points to evaluate them at."""

from __future__ import annotations

import numpy as np
from nests import Op, build_nest, knobs_of

from felix_mlir.features.derive import derive_cpu_features
from felix_mlir.features.machine import MachineLimits
from felix_mlir.features.program import Program

MACHINE = MachineLimits(4, 32, 16, 64, 32 << 10, 1 << 20, 8 << 20).values()
# Caches that small nests overflow.
SMALL_CACHES = MachineLimits(3, 16, 16, 64, 128, 512, 1024).values()
_programs: dict[int, tuple[Op, Program]] = {}


def program_of(op: Op) -> Program:
    """Derive and compile, once per op."""
    if id(op) not in _programs:
        features = derive_cpu_features(build_nest(op))
        _programs[id(op)] = (op, Program([(f.name, f.expr) for f in features], knobs_of(op)))
    return _programs[id(op)][1]


def random_knobs(op: Op, count: int, seed: int) -> list[dict[str, int]]:
    """Any sizes from 1 to a little beyond the extent: dividing, not dividing, larger than what they tile."""
    rng = np.random.default_rng(seed)
    names = knobs_of(op)
    extents = [op.extents[int(name.rsplit("_d", 1)[1])] for name in names]
    return [{name: int(rng.integers(1, e + 3)) for name, e in zip(names, extents, strict=True)} for _ in range(count)]

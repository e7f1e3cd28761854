"""All features of a loop nest, in a fixed order: from loops and accesses alone, whatever the operator is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import sympy

from felix_mlir.features.compute import compute_features
from felix_mlir.features.feature import Feature
from felix_mlir.features.machine import MACHINE
from felix_mlir.features.memory import memory_features
from felix_mlir.features.pieces import Size
from felix_mlir.features.reuse import reuse_features
from felix_mlir.features.tiling import Tiling
from felix_mlir.features.touched import Touched
from felix_mlir.schedule import TileLevel
from felix_mlir.symbolic.nest import LoopNest, Stage


def derive_cpu_features(nest: LoopNest) -> list[Feature]:
    """Return the features of a nest that a CPU runs: one workgroup per distribution tile, stages vectorised.

    Names are unique. Raises UnsupportedNestError.
    """
    features: list[Feature] = []
    stages = list(nest.stages())
    for prefix, (around, stage) in zip(unique_names(stage.name for _, stage in stages), stages, strict=True):
        tiling = Tiling(around, stage)
        operands = operands_of(stage)
        features += compute_features(prefix, tiling, operands)
        features += memory_features(prefix, tiling, operands)
        features += reuse_features(prefix, tiling, operands)
    features += _parallel(nest)
    features += _temporaries(nest)
    return features


def operands_of(stage: Stage) -> dict[str, Touched]:
    """The accesses of a stage by unique name."""
    names = unique_names(access.buffer.name for access in stage.accesses)
    return {name: Touched(access) for name, access in zip(names, stage.accesses, strict=True)}


def unique_names(names: Iterable[str]) -> list[str]:
    """Number the names that occur more than once."""
    listed = list(names)
    often, seen = Counter(listed), Counter[str]()
    result: list[str] = []
    for name in listed:
        result.append(f"{name}.{seen[name]}" if often[name] > 1 else name)
        seen[name] += 1
    return result


def _parallel(nest: LoopNest) -> Iterator[Feature]:
    """Workgroups against cores: they run in waves, and the last one may leave cores idle."""
    stages = list(nest.stages())
    around, stage = next(((a, s) for a, s in stages if s.is_root), stages[0])
    outer = sum(loop.level is TileLevel.DISTRIBUTION for loop in around)
    tiling = Tiling(around, stage)
    workgroups: Size = tiling.tiles(outer)
    waves = sympy.ceiling(workgroups / MACHINE["cores"])
    yield Feature("dispatch/workgroups", "workgroups", workgroups)
    yield Feature("dispatch/waves", "waves", waves)
    yield Feature("dispatch/core_use", "1", workgroups / (waves * MACHINE["cores"]))
    # The largest workgroup's share of what a workgroup does on average.
    largest = sympy.Mul(*tiling.box(outer))
    yield Feature("dispatch/imbalance", "1", largest * workgroups / sympy.Mul(*map(tiling.extent, stage.dims)))


def _temporaries(nest: LoopNest) -> Iterator[Feature]:
    """Memory a workgroup takes for tensors that live inside the dispatch only."""
    temporaries = [buffer for buffer in nest.buffers if buffer.is_temporary]
    sizes = [sympy.Mul(*buffer.shape, buffer.element_bytes) for buffer in temporaries]
    for name, size in zip(unique_names(buffer.name for buffer in temporaries), sizes, strict=True):
        yield Feature(f"dispatch/{name}/allocated", "bytes", size)
    yield Feature("dispatch/allocated", "bytes", sympy.Add(*sizes))

"""All features of a loop nest, in a fixed order: from loops and accesses alone, whatever the operator is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import sympy

from felix_mlir.features.compute import compute_features
from felix_mlir.features.feature import Feature
from felix_mlir.features.machine import MACHINE
from felix_mlir.features.memory import memory_features
from felix_mlir.features.pieces import Size
from felix_mlir.features.reuse import reuse_features
from felix_mlir.features.tiling import Tiling
from felix_mlir.features.touched import Touched
from felix_mlir.schedule import Level, TileLevel
from felix_mlir.symbolic.nest import LoopNest, Stage


def derive_cpu_features(nest: LoopNest) -> list[Feature]:
    """Return the features of a nest that a CPU runs: one workgroup per distribution tile, stages vectorised.

    Names are unique. Raises UnsupportedNestError.
    """
    features: list[Feature] = []
    for prefix, tiling, operands in named_stages(nest):
        features += stage_features(prefix, tiling, operands)
    features += _parallel(nest)
    features += temporary_features(nest)
    return features


def named_stages(nest: LoopNest) -> list[tuple[str, Tiling, dict[str, Touched]]]:
    """The stages of a nest by unique name, with their loops and operands."""
    stages = list(nest.stages())
    names = unique_names(stage.name for _, stage in stages)
    return [(name, Tiling(*stage), operands_of(stage[1])) for name, stage in zip(names, stages, strict=True)]


def stage_features(prefix: str, tiling: Tiling, operands: Mapping[str, Touched]) -> Iterator[Feature]:
    """Yield the features of a stage that follow from loops and accesses, whatever runs them."""
    yield from compute_features(prefix, tiling, operands)
    yield from memory_features(prefix, tiling, operands)
    yield from reuse_features(prefix, tiling, operands)


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
    workgroups, imbalance = workgroups_of(nest, TileLevel.DISTRIBUTION)
    waves = sympy.ceiling(workgroups / MACHINE["cores"])
    yield Feature("dispatch/workgroups", "workgroups", workgroups)
    yield Feature("dispatch/waves", "waves", waves)
    yield Feature("dispatch/core_use", "1", workgroups / (waves * MACHINE["cores"]))
    yield Feature("dispatch/imbalance", "1", imbalance)


def workgroups_of(nest: LoopNest, level: Level) -> tuple[Size, Size]:
    """Number of workgroups, one per tile of `level`, and the largest one's share of what one does on average."""
    stages = list(nest.stages())
    around, stage = next(((a, s) for a, s in stages if s.is_root), stages[0])
    outer = sum(loop.level is level for loop in around)
    tiling = Tiling(around, stage)
    workgroups: Size = tiling.tiles(outer)
    largest = sympy.Mul(*tiling.box(outer))
    return workgroups, largest * workgroups / sympy.Mul(*map(tiling.extent, stage.dims))


def temporary_features(nest: LoopNest) -> Iterator[Feature]:
    """Memory a workgroup takes for tensors that live inside the dispatch only."""
    temporaries = [buffer for buffer in nest.buffers if buffer.is_temporary]
    sizes = [sympy.Mul(*buffer.shape, buffer.element_bytes) for buffer in temporaries]
    for name, size in zip(unique_names(buffer.name for buffer in temporaries), sizes, strict=True):
        yield Feature(f"dispatch/{name}/allocated", "bytes", size)
    yield Feature("dispatch/allocated", "bytes", sympy.Add(*sizes))

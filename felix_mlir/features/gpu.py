"""All features of a loop nest that a GPU runs: those of any nest, and what threads and shared memory make of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy

from felix_mlir.features.derive import named_stages, stage_features, temporary_features, workgroups_of
from felix_mlir.features.feature import Feature
from felix_mlir.features.gpu_machine import GPU_MACHINE
from felix_mlir.features.gpu_stage import GpuStage, gpu_stages
from felix_mlir.features.pieces import Size
from felix_mlir.schedule import GpuTemplate, GpuTileLevel
from felix_mlir.symbolic.nest import LoopNest


def derive_gpu_features(nest: LoopNest, template: GpuTemplate) -> list[Feature]:
    """Return the features of a nest read back from a GPU template's script.

    Names are unique; expressions are over knobs, shapes and `GPU_MACHINE`. Raises UnsupportedNestError.
    """
    features: list[Feature] = []
    for prefix, tiling, operands in named_stages(nest):
        features += stage_features(prefix, tiling, operands)
    stages = gpu_stages(nest, template)
    for stage in stages:
        features += stage.features()
    features += _workgroup(nest, template, stages)
    features += temporary_features(nest)
    return features


def _workgroup(nest: LoopNest, template: GpuTemplate, stages: list[GpuStage]) -> Iterator[Feature]:
    """What one workgroup takes of a multiprocessor, how many run at a time, and in how many waves all do."""
    threads: Any = template.threads
    warps = sympy.ceiling(threads / template.subgroup_size)
    slots = warps * template.subgroup_size
    shared = sympy.Add(*(stage.shared_memory for stage in stages)) * template.stages
    registers: Size = sympy.Max(*(stage.registers for stage in stages), evaluate=False)
    workgroups, imbalance = workgroups_of(nest, GpuTileLevel.WORKGROUP)
    resident: Size = sympy.Min(
        GPU_MACHINE["resident_workgroups"],
        sympy.floor(GPU_MACHINE["resident_threads"] / slots),
        sympy.floor(GPU_MACHINE["registers"] / (registers * slots)),
        *([sympy.floor(GPU_MACHINE["shared_bytes"] / shared)] if shared != 0 else []),
        evaluate=False,
    )
    # One that is too large for a multiprocessor spills registers, or is no legal candidate.
    resident = sympy.Max(resident, 1, evaluate=False)
    cores = GPU_MACHINE["cores"]
    at_once = resident * cores
    waves = sympy.ceiling(workgroups / at_once)
    rounds = sympy.ceiling(workgroups / cores)
    yield Feature("dispatch/threads", "threads", threads)
    yield Feature("dispatch/warps", "warps", warps)
    yield Feature("dispatch/active_lanes", "1", threads / slots)
    yield Feature("dispatch/pipeline_depth", "tiles", template.stages)
    yield Feature("dispatch/shared_memory", "bytes", shared)
    yield Feature("dispatch/of_shared_memory", "1", shared / template.limits.workgroup_memory_bytes)
    yield Feature("dispatch/registers_per_thread", "registers", registers)
    yield Feature("dispatch/workgroups_per_core", "workgroups", resident)
    yield Feature("dispatch/occupancy", "1", resident * slots / GPU_MACHINE["resident_threads"])
    # No more of them are there to begin with where there are few workgroups.
    yield Feature("dispatch/resident", "workgroups", sympy.Min(workgroups, at_once, evaluate=False))
    yield Feature("dispatch/resident_warps", "warps", sympy.Min(rounds, resident, evaluate=False) * warps)
    yield Feature("dispatch/workgroups", "workgroups", workgroups)
    yield Feature("dispatch/waves", "waves", waves)
    yield Feature("dispatch/wave_use", "1", workgroups / (waves * at_once))
    # Workgroups of one multiprocessor share what it can do: the work is done when the fullest one has done its.
    yield Feature("dispatch/core_use", "1", workgroups / (rounds * cores))
    yield Feature("dispatch/imbalance", "1", imbalance)

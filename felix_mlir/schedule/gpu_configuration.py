"""GPU configurations: what IREE writes on the ops it configures, and the tile sizes that are in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from iree.compiler import ir
from typing_extensions import override

from felix_mlir.schedule.configuration import (
    Configuration,
    ConfigurationAttributes,
    GpuTileLevel,
    OpTiles,
    read_attributes,
    trips,
)
from felix_mlir.schedule.dispatch import (
    LOWERING_CONFIG,
    PARALLEL,
    Dispatch,
    compute_ops,
    pipeline_of,
)

# Entries of a lowering configuration whose sizes count elements, in any pipeline.
_READ = (GpuTileLevel.WORKGROUP, GpuTileLevel.REDUCTION, GpuTileLevel.THREAD)


@dataclass(frozen=True)
class GpuConfiguration(Configuration):
    """`ops` has the sizes in elements, by `GpuTileLevel`, of the ops that carry a configuration; others have none.

    `written` is what it is in IREE's attributes: threads of a workgroup, intrinsic, promotion and pipelining too.
    """

    written: ConfigurationAttributes

    @override
    def attributes(self, function: ir.Operation) -> ConfigurationAttributes:
        return self.written

    @override
    def workgroups(self, dispatch: Dispatch) -> int:
        root = dispatch.root
        sizes = self.ops[dispatch.root_index].get(GpuTileLevel.WORKGROUP, ())
        # Only parallel loops are spread over workgroups, whatever the others' entry says.
        parallel = [size if kind == PARALLEL else 0 for size, kind in zip(sizes, root.iterator_types, strict=False)]
        return trips(root.extents, parallel)

    @property
    def intrinsic(self) -> str:
        """The matrix intrinsic it uses, "" for scalar code."""
        found = re.search(r"mma_kind = #iree_gpu\.\w+<(\w+)", " ".join(self.written.lowering_configs))
        return found.group(1) if found else ""


def read_gpu_configuration(function: ir.Operation) -> GpuConfiguration:
    """Read the configuration of a dispatch function that goes through a GPU pipeline.

    Tile sizes that count something else than elements (of matrix intrinsics) show in `written` alone.
    """
    ops: list[OpTiles] = []
    for op in compute_ops(function):
        text = str(op.attributes[LOWERING_CONFIG]) if LOWERING_CONFIG in op.attributes else ""
        counts_intrinsics = "mma_kind" in text
        entries = dict(sizes_in(text))
        ops.append({level: entries[level.value] for level in _READ if level.value in entries and not counts_intrinsics})
    return GpuConfiguration(pipeline_of(function), tuple(ops), read_attributes(function))


def sizes_in(lowering_config: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the entries of a printed lowering configuration that are plain lists of integers."""
    for name, sizes in re.findall(r"(\w+) = \[([\d, ]*)\]", lowering_config):
        yield name, tuple(int(size) for size in sizes.split(",") if size.strip())


def threads_in(translation_info: str) -> int:
    """Return the number of threads of a workgroup in a printed translation info; 0 if it says none."""
    sizes = dict(sizes_in(translation_info)).get("workgroup_size")
    return 0 if sizes is None else trips(sizes, [1] * len(sizes))


def with_threads(translation_info: str, threads: str) -> str:
    """Return a printed translation info with another number of threads, all along x."""
    return re.sub(r"workgroup_size = \[[\d, ]*\]", f"workgroup_size = [{threads}, 1, 1]", translation_info)

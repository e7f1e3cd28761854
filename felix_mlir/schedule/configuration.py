"""Configurations: the tile sizes of every compute op of a dispatch and its pipeline, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any

from iree.compiler import ir

from felix_mlir.schedule.dispatch import (
    LOWERING_CONFIG,
    TRANSLATION_INFO,
    Dispatch,
    configured_functions,
    configured_ops,
    pipeline_of,
)


class TileLevel(StrEnum):
    """Tile levels of `#iree_cpu.lowering_config`, outermost first (IREE's IREE::CPU::TilingLevel)."""

    DISTRIBUTION = "distribution"
    CACHE_PARALLEL = "cache_parallel"
    CACHE_REDUCTION = "cache_reduction"
    VECTOR_COMMON_PARALLEL = "vector_common_parallel"
    VECTOR_REDUCTION = "vector_reduction"
    VECTOR_INNER_PARALLEL = "vector_inner_parallel"


class GpuTileLevel(StrEnum):
    """Tile levels of `#iree_gpu.lowering_config`, outermost first (IREE's IREE::GPU::TilingLevel)."""

    WORKGROUP = "workgroup"
    REDUCTION = "reduction"
    SUBGROUP = "subgroup"
    THREAD = "thread"


Level = TileLevel | GpuTileLevel
OpTiles = Mapping[Any, tuple[int, ...]]  # keyed by the levels of one backend


class ConfigurationError(Exception):
    """A configuration does not fit the dispatch it is written to or read from."""


@dataclass(frozen=True)
class ConfigurationAttributes:
    """A configuration as IREE spells it, for any backend: `lowering_configs` of the compute ops in program order."""

    translation_info: str
    lowering_configs: tuple[str, ...]


@dataclass(frozen=True)
class Configuration:
    """`pipeline` is the name of IREE's pipeline, `ops` the tile sizes of each compute op in program order.

    A size is per loop of the op; 0 leaves the loop untiled at that level. This class is the CPU's; what another
    backend's configuration says beside tile sizes is its subclass's.
    """

    pipeline: str
    ops: tuple[OpTiles, ...]

    def attributes(self, function: ir.Operation) -> ConfigurationAttributes:
        """Return what the configuration means for a configured dispatch function.

        Of the translation info only the pipeline's name changes: options beside it (loop peeling, say) stay as the
        compiler chose.
        """
        old = str(function.attributes[TRANSLATION_INFO])
        new = old.replace(f"#iree_cpu.pipeline<{pipeline_of(function)}>", f"#iree_cpu.pipeline<{self.pipeline}>")
        levels = [", ".join(f"{level} = {list(sizes)}" for level, sizes in op.items()) for op in self.ops]
        with function.context:
            # As MLIR prints them, so that two of the same meaning are equal.
            return ConfigurationAttributes(
                str(ir.Attribute.parse(new)),
                tuple(str(ir.Attribute.parse(f"#iree_cpu.lowering_config<{sizes}>")) for sizes in levels),
            )

    def workgroups(self, dispatch: Dispatch) -> int:
        """Return how many workgroups code of this configuration launches."""
        return trips(dispatch.root.extents, self.ops[dispatch.root_index].get(TileLevel.DISTRIBUTION, ()))


def trips(extents: Sequence[int], sizes: Sequence[int]) -> int:
    """Return how many tiles of `sizes` (0 for a loop that is not tiled) there are in loops of `extents`."""
    return prod(-(-extent // size) for extent, size in zip(extents, sizes, strict=False) if size)


def read_attributes(function: ir.Operation) -> ConfigurationAttributes:
    """Return the configuration a dispatch function carries, whatever kind it is."""
    return ConfigurationAttributes(
        str(function.attributes[TRANSLATION_INFO]),
        tuple(str(op.attributes[LOWERING_CONFIG]) for op in configured_ops(function)),
    )


def write_attributes(function: ir.Operation, attributes: ConfigurationAttributes) -> None:
    """Set a configuration on every compute op of a configured dispatch function, in place.

    Raises ConfigurationError when the compute ops are not those the configuration was made for.
    """
    operations = configured_ops(function)
    if len(operations) != len(attributes.lowering_configs):
        raise ConfigurationError(
            f"the dispatch has {len(operations)} compute ops, the configuration is for "
            f"{len(attributes.lowering_configs)}"
        )
    with function.context:
        for operation, lowering_config in zip(operations, attributes.lowering_configs, strict=True):
            operation.attributes[LOWERING_CONFIG] = ir.Attribute.parse(lowering_config)
        function.attributes[TRANSLATION_INFO] = ir.Attribute.parse(attributes.translation_info)


def write_configuration(function: ir.Operation, configuration: Configuration) -> None:
    """Set the configuration on every compute op of a configured dispatch function, in place.

    Raises ConfigurationError when the compute ops are not those the configuration was made for.
    """
    write_attributes(function, configuration.attributes(function))


def with_configuration(program: str, configuration: Configuration) -> str:
    """Return an isolated program (text at executable-configurations) with another configuration of its one dispatch.

    Raises ConfigurationError as `write_configuration` does.
    """
    with ir.Context():
        module = ir.Module.parse(program)
        write_configuration(next(iter(configured_functions(module.operation).values())), configuration)
        return str(module)


def read_configuration(function: ir.Operation) -> Configuration:
    """Read the configuration a dispatch function carries.

    Raises ConfigurationError for one that is not made of `#iree_cpu.lowering_config` with static sizes.
    """
    return Configuration(
        pipeline_of(function),
        tuple(_read_tiles(str(op.attributes[LOWERING_CONFIG])) for op in configured_ops(function)),
    )


def _read_tiles(text: str) -> OpTiles:
    prefix = "#iree_cpu.lowering_config<"
    if not text.startswith(prefix):
        raise ConfigurationError(f"{text} is not an #iree_cpu.lowering_config")
    tiles: dict[TileLevel, tuple[int, ...]] = {}
    for entry in text.removeprefix(prefix).rstrip(">").split("]"):
        level, separator, sizes = entry.strip(", ").partition(" = [")
        if not separator:
            continue
        if not all(size.strip().isdigit() for size in sizes.split(",") if size.strip()):
            raise ConfigurationError(f"{text} has sizes that are not plain integers")
        tiles[TileLevel(level)] = tuple(int(size) for size in sizes.split(",") if size.strip())
    return tiles

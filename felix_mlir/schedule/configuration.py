"""Configurations: the tile sizes of every compute op of a dispatch and its pipeline, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from iree.compiler import ir

from felix_mlir.schedule.dispatch import (
    LOWERING_CONFIG,
    TRANSLATION_INFO,
    compute_ops,
    configured_functions,
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


OpTiles = Mapping[TileLevel, tuple[int, ...]]


@dataclass(frozen=True)
class Configuration:
    """`pipeline` is a name of `#iree_cpu.pipeline`, `ops` the tile sizes of each compute op in program order.

    A size is per loop of the op; 0 leaves the loop untiled at that level.
    """

    pipeline: str
    ops: tuple[OpTiles, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "ops": [{level.value: list(sizes) for level, sizes in op.items()} for op in self.ops],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Configuration:
        return Configuration(
            data["pipeline"],
            tuple(
                {TileLevel(level): tuple(int(s) for s in sizes) for level, sizes in op.items()} for op in data["ops"]
            ),
        )


class ConfigurationError(Exception):
    """A configuration does not fit the dispatch it is written to or read from."""


def write_configuration(function: ir.Operation, configuration: Configuration) -> None:
    """Set the configuration on every compute op of a configured dispatch function, in place.

    Raises ConfigurationError when the compute ops are not those the configuration was made for.
    """
    operations = compute_ops(function)
    if len(operations) != len(configuration.ops):
        raise ConfigurationError(
            f"the dispatch has {len(operations)} compute ops, the configuration is for {len(configuration.ops)}"
        )
    with function.context:
        for operation, tiles in zip(operations, configuration.ops, strict=True):
            body = ", ".join(f"{level} = {list(sizes)}" for level, sizes in tiles.items())
            operation.attributes[LOWERING_CONFIG] = ir.Attribute.parse(f"#iree_cpu.lowering_config<{body}>")
        # Only the pipeline's name changes: options beside it (loop peeling, say) stay as the compiler chose.
        old = str(function.attributes[TRANSLATION_INFO])
        new = old.replace(
            f"#iree_cpu.pipeline<{pipeline_of(function)}>", f"#iree_cpu.pipeline<{configuration.pipeline}>"
        )
        function.attributes[TRANSLATION_INFO] = ir.Attribute.parse(new)


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
        tuple(_read_tiles(str(op.attributes[LOWERING_CONFIG])) for op in compute_ops(function)),
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

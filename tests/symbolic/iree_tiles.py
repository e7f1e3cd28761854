"""The tile loops IREE's own passes make of a configured dispatch, in a form our tiled IR can be put in too."""

from __future__ import annotations

import subprocess
from pathlib import Path

from iree.compiler import ir

from felix_mlir.compiler.process import tool_path
from felix_mlir.schedule import ScheduleTemplate, TileLevel, configured_functions, write_configuration
from felix_mlir.schedule.dispatch import compute_ops, walk
from felix_mlir.symbolic.tags import OP

# As in addMultiTilingExpertPassPipeline, addConvTileAndDecomposeExpertPassPipeline and
# addCPUBufferOpsTileAndVectorizePipeline, without what does not tile.
_FUSE = "iree-llvmcpu-tile-and-fuse-producer-consumer{{tiling-level={level} {options}}}"
_ROOT = "anchor-on-root-op=true only-fuse-producer-input-operands={inputs}"
_DISTRIBUTE = [
    "iree-codegen-tile-and-distribute-to-workgroups-using-forall-op",
    "iree-codegen-config-tracking-canonicalize",
    "cse",
]


def iree_tiles(template: ScheduleTemplate, configured: Path, values: dict[str, int], folder: Path) -> list[Tiles]:
    """Configure a dispatch with `values` and run IREE's tiling passes on it."""
    configuration = template.configuration(values)
    with ir.Context() as context:
        module = ir.Module.parse(configured.read_text(), context)
        function = next(iter(configured_functions(module.operation).values()))
        for number, op in enumerate(compute_ops(function)):
            op.attributes[OP] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
        write_configuration(function, configuration)
        source, output = folder / "in.mlir", folder / "out.mlir"
        source.write_text(str(module))
        levels = [level for level in TileLevel if level in configuration.ops[template.dispatch.root_index]]
        is_multi = template.name == "DoubleTilingExpert"
        passes = list(_DISTRIBUTE)
        for level in levels:
            if level is TileLevel.VECTOR_COMMON_PARALLEL and template.name == "BufferOpsTileAndVectorize":
                passes.append(f"iree-llvmcpu-tile{{tiling-level={level} skip-root-op=false}}")
            elif level in (TileLevel.CACHE_PARALLEL, TileLevel.VECTOR_COMMON_PARALLEL):
                passes.append(_FUSE.format(level=level, options=_ROOT.format(inputs="false")))
            elif level in (TileLevel.CACHE_REDUCTION, TileLevel.VECTOR_REDUCTION):
                passes.append(_FUSE.format(level=level, options=_ROOT.format(inputs="true")))
                if is_multi and level is TileLevel.VECTOR_REDUCTION:
                    passes.append(f"iree-llvmcpu-tile{{tiling-level={level} skip-root-op=true}}")
        if is_multi:
            inner = TileLevel.VECTOR_INNER_PARALLEL
            passes += [
                _FUSE.format(level=inner, options="anchor-on-root-op=false"),
                "iree-llvmcpu-tile-to-vector-size",
                "cse",
            ]
        pipeline = (
            "builtin.module(hal.executable(hal.executable.variant(builtin.module(func.func("
            + ",".join(passes)
            + ")))))"
        )
        command = [tool_path("iree-opt"), str(source), f"--pass-pipeline={pipeline}", "-o", str(output)]
        subprocess.run(command, check=True, timeout=120, capture_output=True)
        tiled = ir.Module.parse(output.read_text(), context)
        return tiles(next(iter(configured_functions(tiled.operation).values())))


Tiles = tuple[int, tuple[int, ...]]


def tiles(function: ir.Operation) -> list[Tiles]:
    """Per compute op its number and the steps of the loops around it that run more than once, sorted, each once.

    A loop over an extent that is not a constant counts only when its step is new: IREE guesses from bounds whether an
    op still needs its vector tiles, and makes or leaves out loops of one trip.
    """
    found: set[Tiles] = set()
    for op in walk(function):
        if OP in op.attributes:
            around: list[ir.Operation] = []
            parent = op.parent
            while parent is not None and parent.operation.name != "func.func":
                around.insert(0, parent.operation)
                parent = parent.operation.parent
            steps: list[int] = []
            for extent, step in (loop for loops in around for loop in _loops(loops)):
                if step not in steps if extent is None else step < extent:
                    steps.append(step)
            found.add((ir.IntegerAttr(op.attributes[OP]).value, tuple(steps)))
    return sorted(found)


def _loops(op: ir.Operation) -> list[tuple[int | None, int]]:
    """Extent, where it is a constant, and step of each dimension of a loop op."""
    if op.name == "scf.forall":
        extents = ir.DenseI64ArrayAttr(op.attributes["staticUpperBound"])
        steps = ir.DenseI64ArrayAttr(op.attributes["staticStep"])
        dynamic = ir.ShapedType.get_dynamic_size()
        return [(None if e == dynamic else e, step) for e, step in zip(extents, steps, strict=True)]
    if op.name == "scf.for":
        step = _constant(op.operands[2])
        assert step is not None
        return [(_constant(op.operands[1]), step)]
    return []


def _constant(value: ir.Value) -> int | None:
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.constant":
        return None
    return ir.IntegerAttr(value.owner.operation.attributes["value"]).value

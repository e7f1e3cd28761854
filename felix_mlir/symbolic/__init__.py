"""A template as a transform-dialect script, and the loop nest read back from the IR the script tiles.

Contract: `tuning_script` and `symbolic_script` write a template's script, `payload` the function it runs on;
`tile` and `tile_symbolically` run it; `read_nest` turns the result into a `LoopNest`, the same for sizes and symbols.
"""

from __future__ import annotations

from felix_mlir.symbolic.apply import TilingError, run_script, tile, tile_symbolically
from felix_mlir.symbolic.nest import Access, Buffer, Loop, LoopNest, Stage
from felix_mlir.symbolic.payload import payload
from felix_mlir.symbolic.read import read_nest
from felix_mlir.symbolic.script import symbolic_script, tuning_script
from felix_mlir.symbolic.shapes import lift_shapes
from felix_mlir.symbolic.sizes import ReadError
from felix_mlir.symbolic.structure import Structure, structure_of, structures

__all__ = [
    "Access",
    "Buffer",
    "Loop",
    "LoopNest",
    "ReadError",
    "Stage",
    "Structure",
    "TilingError",
    "lift_shapes",
    "payload",
    "read_nest",
    "run_script",
    "structure_of",
    "structures",
    "symbolic_script",
    "tile",
    "tile_symbolically",
    "tuning_script",
]

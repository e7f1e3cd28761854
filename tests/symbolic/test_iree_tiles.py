"""The script makes the loops that IREE makes of the same candidate's configuration."""

from __future__ import annotations

import pytest
from iree_tiles import iree_tiles, tiles
from ops import KINDS

from felix_mlir.schedule.dispatch import walk
from felix_mlir.symbolic import tile


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_loops_are_those_of_irees_passes(drawn, kind, tmp_path):
    for found in drawn(kind, 5):
        for values in found.candidates:
            module = tile(found.template, found.task.configured, values)
            function = next(op for op in walk(module.operation) if op.name == "func.func")
            assert tiles(function) == iree_tiles(found.template, found.task.configured, values, tmp_path)

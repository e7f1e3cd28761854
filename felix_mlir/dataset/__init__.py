"""Measured candidates of many ops, in files: what a cost model learns from and searchers are compared on.

`Table` is one op's file (format felix-replay-1), `SUITES` the ops, `collect` measures them. Latencies are seconds per
launch of the op's dispatch alone.
"""

from __future__ import annotations

from felix_mlir.dataset.suite import SUITES
from felix_mlir.dataset.table import Row, Table, read_table, write_table

__all__ = ["SUITES", "Row", "Table", "read_table", "write_table"]

"""What was measured, kept for good: an append-only SQLite file of `Record`s, shared by any number of runs.

`Store(path)` adds, finds and exchanges records; `Record` states the meaning and unit of every field. Times
are in seconds, latencies and samples in seconds per invocation. Errors: RequestError for a file that cannot
serve as a store, WorkError for a write that fails, ValueError for a record that makes no sense.
"""

from __future__ import annotations

from felix_mlir.records.record import Record
from felix_mlir.records.store import Imported, Store

__all__ = ["Imported", "Record", "Store"]

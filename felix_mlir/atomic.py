"""Files that appear whole or not at all."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """Yield a path to write to: it becomes `path` if the block ends well, and vanishes if not."""
    partial = path.with_name(f"{path.name}.{uuid4().hex}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)

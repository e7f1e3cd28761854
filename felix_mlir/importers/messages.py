"""Other people's error messages, cut to the one line a RequestError carries."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from felix_mlir.errors import RequestError


def on_one_line(error: BaseException) -> str:
    """Return an error's type and its whole message on one line, e.g. `ValueError: no such size`."""
    return ": ".join(part for part in (type(error).__name__, " ".join(str(error).split())) if part)


@contextmanager
def blaming(problem: str) -> Generator[None]:
    """Turn any exception of the block into a RequestError: `problem`, then the first line of its message."""
    try:
        yield
    except Exception as error:
        raise RequestError(f"{problem}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__

"""Errors of one op or search, which must not end the others."""

from __future__ import annotations

from felix_mlir.errors import FelixError


def in_words(error: Exception) -> str:
    """Return what a reader is told of an error; one that nobody foresaw says its type as well."""
    return str(error) if isinstance(error, FelixError) else f"{type(error).__name__}: {error}"

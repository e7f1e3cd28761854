"""Knob values on the command line."""

from __future__ import annotations

from collections.abc import Iterable

from felix_mlir.errors import RequestError


def read_settings(settings: Iterable[str]) -> dict[str, int]:
    """Read `knob=value` words; raises RequestError."""
    values: dict[str, int] = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator or not value.strip().isdigit():
            raise RequestError(f"--set {setting}: write it as knob=value with a whole number")
        values[name.strip()] = int(value)
    return values

"""Measuring an unpacked bundle, where nothing but Python, numpy and iree-base-runtime need be.

This package is part of every bundle, beside worker.py of felix_mlir.measure, and run_bundle.py calls its `measure`: the
code that measures fits what it measures, whatever felix-mlir is elsewhere. Nothing here may import felix_mlir.
"""

from __future__ import annotations

from .measure import measure

__all__ = ["measure"]

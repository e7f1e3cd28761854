"""`python -m felix_mlir.cli` is felix-mlir."""

from __future__ import annotations

from felix_mlir.cli.main import main

main()

"""The command line: every command parses its arguments, calls one function of the package and prints.

Exit status: 0 done, 1 the work failed or was interrupted, 2 the request is wrong.
"""

from __future__ import annotations

from felix_mlir.cli.main import main

__all__ = ["main"]

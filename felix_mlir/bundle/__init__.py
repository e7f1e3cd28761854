"""Bundles: candidates compiled here, measured on a machine that has nothing but a Python, numpy and iree-base-runtime.

`make_bundle` compiles a model's tasks, each with the compiler's default and the most promising candidates, into one
archive. `python run_bundle.py BUNDLE -o RESULTS`, a file that needs nothing of this package, measures it anywhere and
appends a line for each candidate that ended. `read_results` takes these lines into a record store, where the host is
the machine that measured. An archive that is damaged, cut off or made up is refused before anything of it is used.

Times are in seconds, those of results per launch of the dispatch. Errors: RequestError for a request that cannot be
served, WorkError for work that fails.
"""

from __future__ import annotations

from felix_mlir.bundle.make import MadeBundle, make_bundle
from felix_mlir.bundle.read import read_results

__all__ = ["MadeBundle", "make_bundle", "read_results"]

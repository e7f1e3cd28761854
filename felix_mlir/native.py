"""The parts written in C++ (passes/ in the source tree), if they could be built, and the command felix-iree-compile.

Apart from felix_mlir.passes, because that command should start at once.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

LIBRARY = "libFelixPasses.so"
DRIVER = "felix-iree-compile-bin"
WITHOUT = "felix-mlir was installed without a C++ compiler: its passes run in Python"


def native_file(name: str) -> Path | None:
    """Return the path of something built from passes/, None where it was not built."""
    # An editable installation keeps what was built apart from the sources; both are parts of the package.
    package = find_spec("felix_mlir.passes")
    folders = (package.submodule_search_locations or []) if package else []
    return next((path for folder in folders if (path := Path(folder) / name).is_file()), None)


def main() -> None:
    """Run felix-iree-compile: the driver in C++, or the one in Python where that could not be built."""
    driver = native_file(DRIVER)
    if driver is not None:
        os.execv(driver, ["felix-iree-compile", *sys.argv[1:]])
    print(f"felix-iree-compile: {WITHOUT}", file=sys.stderr)
    from felix_mlir.passes.driver import main as run

    sys.exit(run(sys.argv[1:]))

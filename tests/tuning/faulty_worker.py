"""The measuring worker, but a module with a file `<module>.crash` or `<module>.hang` beside it does just that."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from felix_mlir.measure import worker

_load = worker.Program.__init__


def load_or_fail(self: worker.Program, device: worker.Device, entry: dict[str, str]) -> None:
    if Path(entry["vmfb"] + ".crash").exists():
        os.kill(os.getpid(), signal.SIGSEGV)
    if Path(entry["vmfb"] + ".hang").exists():
        time.sleep(10_000)
    _load(self, device, entry)


worker.Program.__init__ = load_or_fail
worker.main()

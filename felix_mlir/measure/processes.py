"""Ending children that run in a process group of their own."""

from __future__ import annotations

import contextlib
import os
import signal


def kill_group(pid: int) -> None:
    """Kill the process group that `pid` leads; nothing happens if it is gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)

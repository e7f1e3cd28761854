"""The measuring worker with eager torch among its programs: one whose function is "torch:NAME" is an op of SIX_OPS.

One process takes turns between torch and IREE, on the same inputs, with as many threads and the same allocator.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import numpy as np
import torch
from six_ops import SIX_OPS

from felix_mlir.measure import worker
from felix_mlir.target import parse_target

PREFIX = "torch:"
# The threads of OpenMP spin for some milliseconds after torch's last call, which the next program must not pay for.
_REST_S = 0.01

_IreeProgram = worker.Program


class TorchProgram:
    """An op of SIX_OPS on the inputs of a worker's job, called as worker.Program is."""

    def __init__(self, entry: dict[str, Any]) -> None:
        op = SIX_OPS[entry["function"].removeprefix(PREFIX)]
        self.invoke = op.eager(worker.load_arrays(Path(entry["inputs"]), "arg"))

    def outputs(self) -> list[np.ndarray]:
        return [self.invoke().numpy()]


class RestingTimer(worker.Timer):
    """Leaves the machine idle for a moment after each sample."""

    def sample(self) -> float:
        seconds = super().sample()
        time.sleep(_REST_S)
        return seconds


def program(device: worker.Device, entry: dict[str, Any]) -> worker.Program | TorchProgram:
    return TorchProgram(entry) if entry["function"].startswith(PREFIX) else _IreeProgram(device, entry)


if __name__ == "__main__":
    torch.set_num_threads(parse_target("cpu").cores)
    torch.set_grad_enabled(False)
    worker.Program, worker.Timer = program, RestingTimer
    worker.main()

"""The measuring worker with eager torch among its programs: those whose function is "torch:NAME".

NAME is an op of SIX_OPS, or file.py:function, a function that returns a model and its example inputs. One process takes
turns between torch and IREE, on the same inputs, with as many threads and the same allocator.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
import torch
from six_ops import SIX_OPS

from felix_mlir.importers.python_function import call_function
from felix_mlir.importers.tensors import tensor_to_numpy
from felix_mlir.measure import worker
from felix_mlir.target import parse_target

PREFIX = "torch:"
# The threads of OpenMP spin for some milliseconds after torch's last call, which the next program must not pay for.
_REST_S = 0.01
# A run that takes longer does not notice what ran before it.
_SLOW_S = 1.0

_IreeProgram = worker.Program


class TorchProgram:
    """An op or a model on the inputs of a worker's job, called as worker.Program is."""

    def __init__(self, entry: dict[str, Any]) -> None:
        name = entry["function"].removeprefix(PREFIX)
        arrays = worker.load_arrays(Path(entry["inputs"]), "arg")
        self.invoke = SIX_OPS[name].eager(arrays) if name in SIX_OPS else bind_model(name, arrays)

    def outputs(self) -> list[np.ndarray]:
        results = self.invoke()
        return [tensor_to_numpy(result) for result in (results if isinstance(results, tuple | list) else [results])]


def bind_model(name: str, arrays: Sequence[np.ndarray]) -> Callable[[], Any]:
    """Return the call of a model on `arrays`."""
    place, _, function = name.rpartition(":")
    module, _ = call_function(place, function)
    module.eval()
    inputs = [torch.from_numpy(array) for array in arrays]
    return lambda: module(*inputs)


class SteadyTimer(worker.Timer):
    """Times a program as it runs again and again, whatever ran before it.

    One run before each sample does not count: it pays for memory that others freed and caches they filled, up to half
    of a run's time. The machine rests for a moment after each.
    """

    _seconds = 0.0

    def sample(self) -> float:
        if self._seconds < _SLOW_S:
            self._program.invoke()
        self._seconds = super().sample()
        time.sleep(_REST_S)
        return self._seconds


def program(device: worker.Device, entry: dict[str, Any]) -> worker.Program | TorchProgram:
    return TorchProgram(entry) if entry["function"].startswith(PREFIX) else _IreeProgram(device, entry)


if __name__ == "__main__":
    torch.set_num_threads(parse_target("cpu").cores)
    torch.set_grad_enabled(False)
    # It starts its threads for its first loop: now, since later they would inherit the policy of the worker's own.
    torch.ones(1 << 20).exp_()
    worker.Program, worker.Timer = program, SteadyTimer
    worker.main()

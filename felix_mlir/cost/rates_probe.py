"""The child process that measures arithmetic and memory traffic: prints one JSON line, a part of MachineRates.

Run it by path, `python -P rates_probe.py CORES L1 L2 L3 MEMORY`: it needs only torch. The last four are the bytes to
stream at each level; they should fit the level and not the one inside.

Every figure is the best of several looks, since others can slow the machine down but not speed it up. The looks take
turns, so that a slow spell has to last for all of them to do harm.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

ROUNDS = 5
# A look repeats its call for this many seconds, and takes one call at least.
LOOK_S = 10e-3
# Sides of the square matrices multiplied; the large ones only where the small ones take no longer than SLOW_S.
SMALL, LARGE = 256, 512
SLOW_S = 5e-3
# Bytes one call streams from L1, again and again, so that the call itself does not count.
AGAIN_BYTES = 8 << 20
FLOAT_BYTES = 4

Call = Callable[[], object]


def main(cores: int, l1: int, l2: int, l3: int, memory: int) -> None:
    torch.set_num_threads(1)
    data = torch.ones(memory // FLOAT_BYTES)
    products = {name: found for name, found in _products().items() if found is not None}
    with ThreadPoolExecutor(cores) as pool:
        calls: dict[str, Call] = {name: call for name, (_, call) in products.items()}
        calls |= {
            "memory": lambda: _dot(data),
            "l3": lambda: _dot(data[: l3 // FLOAT_BYTES]),
            "l2": lambda: _dot(data[: l2 // FLOAT_BYTES]),
            "call": lambda: _dot(data[:2]),
            "l1": _sum_again(data[: l1 // FLOAT_BYTES], AGAIN_BYTES // l1),
            # torch lets go of the interpreter while it works.
            "all": lambda: list(pool.map(_dot, data.chunk(cores))),
        }
        best = _best(calls)

    flops = {name: count / best[name] for name, (count, _) in products.items()}
    # Where torch has no product: what is not f32 can be widened to it, and bytes have more lanes than floats. It
    # multiplies i32 one by one, which says nothing of the machine: as many lanes as f32.
    f32 = flops["f32"]
    flops = {"f64": f32, "f16": f32, "bf16": f32, "i8": 2 * f32, "i32": f32} | flops

    # Without the cost of the call, but what is left of two nearly equal times would be noise.
    rates = {"memory": memory / best["memory"], "l3": l3 / best["l3"]}
    rates["l2"] = l2 / max(best["l2"] - best["call"], best["l2"] / 2)
    rates["l1"] = AGAIN_BYTES // l1 * l1 / best["l1"]
    # No level is slower than the one outside it: such a figure was disturbed.
    fastest = 0.0
    for name, rate in rates.items():
        rates[name] = fastest = max(fastest, rate)
    rates["memory_all"] = max(memory / best["all"], rates["memory"])
    print(json.dumps({"flops": flops, **{f"{name}_bytes_s": rate for name, rate in rates.items()}}))


def _products() -> dict[str, tuple[int, Call] | None]:
    return {
        "f64": _product(torch.mm, torch.float64),
        "f32": _product(torch.mm, torch.float32),
        "f16": _product(torch.mm, torch.float16),
        "bf16": _product(torch.mm, torch.bfloat16),
        "i8": _product(getattr(torch, "_int_mm", None), torch.int8),
    }


def _product(multiply: Callable[[Any, Any], Any] | None, dtype: torch.dtype) -> tuple[int, Call] | None:
    """FLOP and call of a matrix product; None if torch cannot multiply this type here."""
    if multiply is None:
        return None

    def call(side: int) -> Call:
        matrix = torch.ones(side, side).to(dtype)
        return lambda: multiply(matrix, matrix)

    small, large = call(SMALL), call(LARGE)
    try:
        small()  # Prepares the kernel, which takes longer than running it.
    except RuntimeError:
        return None
    return (2 * LARGE**3, large) if _look(small) <= SLOW_S else (2 * SMALL**3, small)


def _sum_again(data: torch.Tensor, times: int) -> Call:
    again = data.expand(times, data.numel())
    return lambda: again.sum(1)


def _dot(data: torch.Tensor) -> torch.Tensor:
    half = data.numel() // 2
    return torch.dot(data[:half], data[half : 2 * half])


def _best(calls: dict[str, Call]) -> dict[str, float]:
    """Seconds of the fastest run of each call."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            best[name] = min(best[name], _look(call))
    return best


def _look(call: Call) -> float:
    best = float("inf")
    start = now = time.perf_counter()
    while now - start < LOOK_S:
        before = now
        call()
        now = time.perf_counter()
        best = min(best, now - before)
    return best


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

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
# Sides of the result of a convolution and of its window.
IMAGE, WINDOW = 28, 3
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
    f32 = max(flops.pop("f32"), flops.pop("f32 convolution", 0.0))
    # Where torch has no product of a type, or a slow one: f64 has half as many lanes, what is narrower than f32 can be
    # widened to it, and bytes have more lanes than floats. It multiplies i32 one by one: as many lanes as f32.
    least = {"f64": f32 / 2, "f32": f32, "f16": f32, "bf16": f32, "i8": 2 * f32, "i32": f32}
    flops = {name: max(rate, flops.get(name, 0.0)) for name, rate in least.items()}

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
        "f32 convolution": _sized(_convolution),
        "f16": _product(torch.mm, torch.float16),
        "bf16": _product(torch.mm, torch.bfloat16),
        "i8": _product(getattr(torch, "_int_mm", None), torch.int8),
    }


def _product(multiply: Callable[[Any, Any], Any] | None, dtype: torch.dtype) -> tuple[int, Call] | None:
    """FLOP and call of a matrix product; None if torch cannot multiply this type here."""
    if multiply is None:
        return None

    def product(side: int) -> tuple[int, Call]:
        matrix = torch.ones(side, side).to(dtype)
        return 2 * side**3, lambda: multiply(matrix, matrix)

    return _sized(product)


def _convolution(side: int) -> tuple[int, Call]:
    """A convolution of about as many FLOP as a product of this side.

    The library behind torch's f32 products leaves half of the vector lanes of other makers' processors idle; the one
    behind its convolutions does not.
    """
    channels = side // 4
    image = torch.ones(1, channels, IMAGE + WINDOW - 1, IMAGE + WINDOW - 1)
    window = torch.ones(channels, channels, WINDOW, WINDOW)
    return 2 * (channels * IMAGE * WINDOW) ** 2, lambda: torch.nn.functional.conv2d(image, window)


def _sized(make: Callable[[int], tuple[int, Call]]) -> tuple[int, Call] | None:
    """The large one where the small one is fast enough; None if torch cannot run it here."""
    small = make(SMALL)
    try:
        small[1]()  # Prepares the kernel, which takes longer than running it.
    except RuntimeError:
        return None
    return make(LARGE) if _look(small[1]) <= SLOW_S else small


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

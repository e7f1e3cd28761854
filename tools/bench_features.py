"""Times features: deriving and compiling them for a seven-loop convolution, and evaluating points with gradients.

python tools/bench_features.py [--points 4096] [--seeds 3] [--threads 1]

Several seeds, each a fresh set of points; the table has the median and the spread (interquartile range over median)
of all repetitions, so that a noisy machine shows. Spaces are tiled at three levels (distribution, cache, vector).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "features"))
from nests import Op, build_nest, conv_2d, knobs_of

from felix_mlir.features import Program, derive_cpu_features, read_host

# ResNet-50's strided 3x3 convolution, and its nest.
CONVOLUTION = conv_2d((1, 128, 28, 28, 128, 3, 3), stride=2)


def timed(run: Callable[[], object], repeats: int) -> list[float]:
    samples: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        samples.append(1e3 * (time.perf_counter() - start))
    return samples


def show(what: str, samples: list[float]) -> None:
    low, middle, high = np.percentile(samples, [25, 50, 75])
    print(f"{what:<44} {middle:9.1f} ms   spread {(high - low) / middle:6.1%}   of {len(samples)}")


def compile_program(op: Op) -> Program:
    features = derive_cpu_features(build_nest(op))
    return Program([(f.name, f.expr) for f in features], knobs_of(op))


def random_points(program: Program, op: Op, count: int, seed: int) -> np.ndarray:
    """Sizes log-uniform between 1 and the extent."""
    rng = np.random.default_rng(seed)
    extents = np.array([op.extents[int(name.rsplit("_d", 1)[1])] for name in program.knobs])
    return np.exp(rng.random((count, len(extents))) * np.log(extents))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=4096)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1, help="threads of torch; more than idle cores are slower")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    compiling: list[float] = []
    start = time.perf_counter()
    program = compile_program(CONVOLUTION)
    compiling.append(1e3 * (time.perf_counter() - start))
    print(f"{len(program.names)} features of {len(program.knobs)} knobs, {len(program.tape.nodes)} operations")
    show("derive and compile (first, caches cold)", compiling)

    machine = read_host().values()
    exact: list[float] = []
    forward: list[float] = []
    both: list[float] = []
    for dtype in (torch.float64, torch.float32):
        exact.clear()
        forward.clear()
        both.clear()
        for seed in range(options.seeds):
            points = random_points(program, CONVOLUTION, options.points, seed)
            whole = np.maximum(1, points.round()).astype(np.int64)
            logs = torch.log(torch.tensor(points, dtype=dtype)).requires_grad_()

            def values(logs: torch.Tensor = logs) -> torch.Tensor:
                return program.relaxed(torch.exp(logs), machine, temperature=0.5)

            def gradients(logs: torch.Tensor = logs) -> None:
                logs.grad = None
                torch.log1p(values(logs)).sum().backward()

            gradients()  # the first pass grows the heap
            exact += timed(lambda points=whole: program.exact(points, machine), options.repeats)
            forward += timed(values, options.repeats)
            both += timed(gradients, options.repeats)
        name = f"{options.points} points, {str(dtype).removeprefix('torch.')}, {options.threads} thread"
        if dtype is torch.float64:
            show(f"exact, {options.points} points", exact)
        show(f"relaxed, {name}", forward)
        show(f"relaxed and gradients, {name}", both)


if __name__ == "__main__":
    main()

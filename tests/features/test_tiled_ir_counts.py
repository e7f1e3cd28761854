"""Features of symbolic schedules against what running the concretely tiled MLIR counts, for drawn ops and knobs."""

from __future__ import annotations

import tempfile
from collections import Counter
from math import prod
from pathlib import Path

import numpy as np
import pytest
from configured import CPU, write_flow
from feature_cases import MACHINE
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tiled_ir import TiledIr

from felix_mlir.dataset.ops import ADD, MULTIPLY_ADD, generic, matmul, named, window
from felix_mlir.features import Program, derive_cpu_features
from felix_mlir.schedule import LegalSpace
from felix_mlir.symbolic import read_nest, structure_of, tile, tile_symbolically
from felix_mlir.tasks import TunableTask, extract_tasks

size = st.integers(2, 11)
few = st.integers(2, 5)


def span(out: int, kernel: int, stride: int, dilation: int) -> int:
    return (out - 1) * stride + (kernel - 1) * dilation + 1


@st.composite
def matmuls(draw):
    m, n, k = draw(size), draw(size), draw(size)
    kind = draw(st.sampled_from(["plain", "relu", "batch", "transposed"]))
    if kind == "batch":
        return named("batch_matmul", [(b := draw(few), m, k), (b, k, n)], (b, m, n))
    if kind == "transposed":
        return generic("t", ["d0, d2", "d1, d2", "d0, d1"], "ppr", [(m, k), (n, k)], (m, n), MULTIPLY_ADD)
    return matmul(m, n, k, epilogue=kind == "relu")


@st.composite
def convolutions(draw):
    rank, first = draw(st.integers(1, 3)), draw(st.booleans())
    stride, dilation = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    c, f = draw(few), draw(few)
    out = [draw(st.integers(2, 4 if rank == 3 else 6)) for _ in range(rank)]
    kernel = [draw(st.integers(2, 3)) for _ in range(rank)]
    inside = [span(o, k, stride, dilation) for o, k in zip(out, kernel, strict=True)]
    axes = "dhw"[3 - rank :]
    if first:
        op, shapes = f"conv_{rank}d_nc{axes}_fc{axes}", [(1, c, *inside), (f, c, *kernel)]
        return named(op, shapes, (1, f, *out), window(rank, stride, dilation))
    op, shapes = f"conv_{rank}d_n{axes}c_{axes}cf", [(1, *inside, c), (*kernel, c, f)]
    return named(op, shapes, (1, *out, f), window(rank, stride, dilation))


@st.composite
def others(draw):
    out, stride, c = draw(st.integers(2, 6)), draw(st.integers(1, 2)), draw(size)
    wide = span(out, 3, stride, 1)
    m, n = draw(size), draw(size)
    return draw(
        st.sampled_from([
            named("depthwise_conv_2d_nhwc_hwc", [(1, wide, wide, c), (3, 3, c)], (1, out, out, c), window(2, stride)),
            named("depthwise_conv_2d_nchw_chw", [(1, c, wide, wide), (c, 3, 3)], (1, c, out, out), window(2, stride)),
            named("pooling_nhwc_sum", [(1, wide, wide, c), (3, 3)], (1, out, out, c), window(2, stride)),
            generic("r", ["d0, d1", "d0"], "pr", [(m, n)], (m,), ADD),
            generic("t", ["d1, d0", "d0, d1"], "pp", [(m, n)], (n, m), "linalg.yield %a : f32"),
            generic(
                "b", ["d0, d1", "d1", "d0, d1"], "pp", [(m, n), (n,)], (m, n),
                "%s = arith.addf %a, %b : f32\n linalg.yield %s : f32",
            ),
        ])
    )  # fmt: skip


def tunable(mlir: str, folder: Path) -> TunableTask | None:
    tasks = [t for t in extract_tasks(write_flow(mlir, folder), CPU, folder / "tasks") if t.tunable]
    return max(tasks, key=lambda t: prod(t.iteration_space)).tunable if tasks else None


def check(task: TunableTask, seed: int) -> None:
    template = task.templates[0]
    (values,) = LegalSpace(template).draw(1, np.random.default_rng(seed))
    nest = read_nest(tile_symbolically(template, task.configured, structure_of(template, values)), template)
    features = derive_cpu_features(nest)
    exact = Program([(f.name, f.expr) for f in features], [k.name for k in template.knobs]).exact(values, MACHINE)
    run = TiledIr(tile(template, task.configured, values))
    stages = [stage for _, stage in nest.stages()]
    names, numbers = Counter(s.name for s in stages), Counter(s.op for s in stages)
    checked = 0
    for stage in stages:
        if names[stage.name] > 1 or numbers[stage.op] > 1:
            continue  # Their features are told apart by position, their counts are not.
        counts, prefix = run.counts[stage.op], stage.name
        expected = {f"{prefix}/iterations": counts.iterations}
        for kind, number in stage.operations.items():
            expected[f"{prefix}/{kind}"] = number * counts.iterations
        for level, tiles in counts.tiles.items():
            expected[f"{prefix}/{level}/tiles"] = len(tiles)
        for buffer, places in counts.touched.items():
            expected[f"{prefix}/{buffer}/unique"] = 4 * len(places["dispatch", 0])
            # Where a window leaves gaps, the feature is an estimate: each row counts as if it began a line.
            if len(places["dispatch", 0]) == prod(run.shapes[buffer]):
                lines = {element * 4 // 64 for element in places["dispatch", 0]}
                expected[f"{prefix}/dispatch/{buffer}/lines"] = len(lines)
            for level in counts.tiles:
                tiles = [touched for (place, _), touched in places.items() if place == level]
                expected[f"{prefix}/{level}/{buffer}/traffic"] = 4 * sum(map(len, tiles))
        for name, count in expected.items():
            assert name in exact, f"no feature {name}"
            assert float(np.ravel(exact[name])[0]) == count, f"{name} at {values}"
            checked += 1
    assert checked > 3


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(mlir=st.one_of(matmuls(), convolutions(), others()), seed=st.integers(0, 100))
def test_features_equal_what_the_tiled_ir_does(mlir, seed):
    with tempfile.TemporaryDirectory() as folder:
        task = tunable(mlir, Path(folder))
        assume(task is not None)
        check(task, seed)


@pytest.mark.parametrize("seed", range(3))
def test_features_of_a_fused_matmul_equal_what_the_tiled_ir_does(seed, tmp_path):
    check(tunable(matmul(20, 33, 14, epilogue=True), tmp_path), seed)

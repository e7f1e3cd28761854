"""GPU features at integers are what an interpreter counts."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from gpu_cases import CASES, MACHINE, name
from gpu_interpreter import Gpu
from hypothesis import given, settings
from hypothesis import strategies as st

from felix_mlir.features import Program


@cache
def program(case: str) -> Program:
    return CASES[case].program()


def draw_knobs(case: str, seed: int) -> dict[str, int]:
    """Any serial and workgroup tiles, the latter made of threads whose lanes fill whole rows of a subgroup."""
    rng = np.random.default_rng(seed)
    knobs: dict[str, int] = {}
    for loop, own in enumerate(CASES[case].levels):
        extent = CASES[case].op.extents[loop]
        if len(own) == 1:
            knobs[name(loop, own[0])] = int(rng.integers(1, extent + 1))
            continue
        lanes = int(rng.choice([n for n in (1, 2, 4, 8, 16, 32) if n <= extent]))
        inner = int(rng.integers(1, extent // lanes + 1))
        knobs |= {name(loop, own[0]): lanes * inner, name(loop, own[1]): inner}
    return knobs


def exact(case: str, knobs: dict[str, int]) -> dict[str, float]:
    return {key: value.item() for key, value in program(case).exact(knobs, MACHINE.values()).items()}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(CASES)), st.integers(0, 10**6))
def test_a_workgroup_takes_what_is_counted(case, seed):
    knobs = draw_knobs(case, seed)
    values, gpu = exact(case, knobs), Gpu(CASES[case], knobs)
    threads = len(gpu.threads(gpu.first)) * (CASES[case].subgroup_size if CASES[case].intrinsic else 1)
    for key, counted in gpu.waves(threads).items():
        assert values[f"dispatch/{key}"] == pytest.approx(counted), key
    if CASES[case].intrinsic:
        assert values["op/intrinsic_use"] == pytest.approx(gpu.intrinsic_use())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(CASES)), st.integers(0, 10**6))
def test_accesses_cost_what_is_counted(case, seed):
    knobs = draw_knobs(case, seed)
    values, gpu = exact(case, knobs), Gpu(CASES[case], knobs)
    unique = 0
    for number, operand in enumerate(CASES[case].op.operands):
        here = f"op/{operand.name}"
        unique += gpu.touched(operand, tuple((0, e) for e in CASES[case].op.extents))
        moved = sum(gpu.touched(operand, box) for box in gpu.held_tiles(operand))
        lines = values[f"op/{_depth(case)}/{operand.name}/lines"] * MACHINE.line_bytes
        assert values[f"{here}/global"] == pytest.approx(moved * lines / gpu.touched(operand, gpu.first))
        is_promoted = number in CASES[case].promoted
        if CASES[case].intrinsic is None:
            lanes = len({tuple(row) for row in gpu.lanes(operand)})
            shape, origin = gpu.shapes[operand.name], np.zeros(len(operand.index), int)
            if is_promoted:
                shape, origin = gpu.promoted_shape(operand)
                assert values[f"{here}/bank_rounds"] == gpu.bank_rounds(operand)
            else:
                lines = gpu.transactions(operand)
                useful = lanes * gpu.vector(operand, shape, origin) * operand.element_bytes
                assert values[f"{here}/transactions"] == lines
                assert values[f"{here}/coalescing"] == pytest.approx(useful / (lines * MACHINE.line_bytes))
            assert values[f"{here}/vector"] == gpu.vector(operand, shape, origin)
        assert values[f"{here}/on_chip"] == pytest.approx(gpu.on_chip(operand, is_promoted))
    assert values["op/unique"] == unique


def _depth(case: str) -> str:
    return "reduction" if "r" in CASES[case].op.kinds else "workgroup"


def test_a_column_costs_as_many_transactions_as_it_has_lanes():
    """Reading a row-major array along its columns, and the fix: threads along the rows."""
    tile = {"workgroup_d0": 1, "thread_d0": 1, "workgroup_d1": 32, "thread_d1": 1}
    values = exact("transpose", tile)
    assert values["op/in0/transactions"] == 32
    assert values["op/in0/coalescing"] == pytest.approx(4 / 32)
    assert values["op/out/transactions"] == 4
    assert values["op/out/coalescing"] == 1


def test_rows_of_a_power_of_two_conflict_and_odd_ones_do_not():
    def rounds(depth: int) -> float:
        tile = {"workgroup_d0": 4, "thread_d0": 4, "workgroup_d1": 32, "thread_d1": 1, "reduction_d2": depth}
        return exact("matmul_transposed", tile)["op/right/bank_rounds"]

    # 32 lanes a row apart; with vectors of 4 elements four rounds are the fewest.
    assert [rounds(depth) for depth in (1, 3, 5, 7)] == [1, 1, 1, 1]
    assert rounds(2) == 2
    assert rounds(16) == 16

"""CPU templates: knobs, constraints and configurations of every op kind."""

from __future__ import annotations

import numpy as np
import pytest
from iree.compiler import ir
from ops import KINDS

from felix_mlir.schedule import (
    LegalSpace,
    TileLevel,
    configured_functions,
    read_configuration,
    write_configuration,
)
from felix_mlir.schedule.cpu import tile_sizes, vector_sizes


@pytest.fixture(params=sorted(KINDS))
def task(request, tasks_of):
    return tasks_of(request.param).root


def test_the_compilers_default_comes_back_from_its_knob_values(task):
    for template in task.tunable.templates:
        values = template.values_of(task.tunable.default)
        assert values is not None
        again = template.configuration(values)
        root = template.dispatch.root_index
        for level in (TileLevel.VECTOR_COMMON_PARALLEL, TileLevel.VECTOR_REDUCTION):
            expected = task.tunable.default.ops[root].get(level, ())
            loops = [i for i, extent in enumerate(task.iteration_space) if extent > 1 and i < len(expected)]
            actual = again.ops[root].get(level, (0,) * len(task.iteration_space))
            assert [actual[i] for i in loops if expected[i]] == [expected[i] for i in loops if expected[i]]


def test_drawn_candidates_are_legal_and_write_what_they_say(task):
    for template in task.tunable.templates:
        for values in LegalSpace(template).draw(20, np.random.default_rng(0)):
            assert template.violations(values) == []
            configuration = template.configuration(values)
            with ir.Context():
                module = ir.Module.parse(task.tunable.configured.read_text())
                function = next(iter(configured_functions(module.operation).values()))
                write_configuration(function, configuration)
                assert module.operation.verify()
                assert read_configuration(function) == configuration
            assert template.values_of(configuration) == values


def test_a_broken_constraint_is_named_in_words(tasks_of):
    template = tasks_of("matmul").root.tunable.templates[0]
    values = LegalSpace(template).draw(1, np.random.default_rng(0))[0]
    broken = {**values, "distribution_d1": 48, "cache_d1": 32}
    assert any("cache_d1 must divide distribution_d1" in message for message in template.violations(broken))
    assert any("is not one of its" in message for message in template.violations({**values, "cache_d0": 49}))


def test_a_window_that_cannot_be_decomposed_is_refused(tasks_of):
    template = tasks_of("conv2d_nchw").root.tunable.templates[0]
    assert template.name == "ConvTileAndDecomposeExpert"
    values = LegalSpace(template).draw(1, np.random.default_rng(0))[0]
    window = {"vector_d2": 2, "vector_d3": 2, "vector_d5": 1, "vector_d6": 1}
    assert any("decomposed" in message for message in template.violations({**values, **window}))


@pytest.mark.parametrize("extent", [1, 2, 7, 50, 100, 197, 1000, 11008])
def test_tile_sizes_hold_every_divisor_and_every_least_wasteful_size(extent):
    sizes = tile_sizes(extent)
    assert all(1 <= size <= extent for size in sizes)
    assert {d for d in range(1, extent + 1) if extent % d == 0} <= sizes
    counts = {-(-extent // size): size for size in sorted(range(1, extent + 1), reverse=True)}
    assert set(counts.values()) <= sizes


@pytest.mark.parametrize("extent", [2, 3, 50, 197, 1000])
def test_vector_sizes_stay_within_eight_registers(extent):
    sizes = vector_sizes(extent, lanes=16)
    assert max(sizes) <= 128
    assert 16 in sizes
    assert all(extent % size == 0 or size & (size - 1) == 0 for size in sizes)

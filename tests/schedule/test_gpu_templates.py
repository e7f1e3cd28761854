"""GPU templates: limits, knobs, constraints and configurations of every op kind, without a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_tasks import CUDA_KINDS, cuda_task, draw
from iree.compiler import ir

from felix_mlir.schedule import (
    GpuTileLevel,
    LegalSpace,
    configured_functions,
    read_attributes,
    write_configuration,
)
from felix_mlir.schedule.template import evaluated

# One thread does it all, or the compiler states no rules for its intrinsics, or fails to state them.
UNTUNED = {"reduction_full": "no template for the pipeline Distribute"}
TUNED = sorted(CUDA_KINDS.keys() - UNTUNED.keys())


@pytest.mark.parametrize(("kind", "reason"), UNTUNED.items())
def test_what_no_template_fits_keeps_its_default_for_a_reason(kind, reason):
    task = cuda_task(CUDA_KINDS[kind])
    assert task.tunable is None
    assert task.reason == reason


def test_limits_are_those_of_the_target():
    limits = cuda_task(CUDA_KINDS["matmul"]).tunable.limits
    assert limits.arch == "sm_80"
    assert limits.max_threads == 1024
    assert limits.max_workgroup_sizes == (1024, 1024, 1024)
    assert limits.subgroup_sizes == (32,)
    assert "NV_MMA_SYNC_F32_16x8x16_F16" in limits.intrinsics
    assert 0 < limits.workgroup_memory_bytes < 1 << 20


@pytest.mark.parametrize("kind", TUNED)
def test_drawn_candidates_are_legal_and_write_what_they_say(kind):
    task = cuda_task(CUDA_KINDS[kind])
    for template in task.tunable.templates:
        limits = template.limits
        drawn = draw(template, 20)
        assert len(drawn) == 20
        for values in drawn:
            assert template.violations(values) == []
            threads = evaluated(template.threads, values)
            assert 1 <= threads <= limits.max_threads
            configuration = template.configuration(values)
            assert template.values_of(configuration) == values
            assert configuration.workgroups(template.dispatch) >= 1
            assert f"workgroup_size = [{threads}, 1, 1]" in configuration.written.translation_info
        with ir.Context():
            module = ir.Module.parse(task.tunable.configured.read_text())
            function = next(iter(configured_functions(module.operation).values()))
            write_configuration(function, configuration)
            assert read_attributes(function) == configuration.written
            assert function.verify()


@pytest.mark.parametrize("kind", TUNED)
def test_a_draw_is_rejected_less_than_99_times_in_100(kind):
    for template in cuda_task(CUDA_KINDS[kind]).tunable.templates:
        space, rng = LegalSpace(template), np.random.default_rng(0)
        points = np.array([[rng.choice(knob.options) for knob in template.knobs] for _ in range(500)])
        # Uniform over the options of each knob: worse than the space's own draws of tuples.
        assert template.satisfied(points).all(axis=1).mean() > 0.005 or len(space.sample(4096, rng)) >= 4096


@pytest.mark.parametrize("kind", ["matmul", "conv2d_nchw", "elementwise", "layer_norm", "softmax", "transpose"])
def test_the_compilers_default_comes_back_from_its_knob_values(kind):
    task = cuda_task(CUDA_KINDS[kind])
    template = task.tunable.templates[0]
    values = template.values_of(task.tunable.default)
    assert values is not None
    assert template.violations(values) == []
    assert template.configuration(values).written.lowering_configs == task.tunable.default.written.lowering_configs


@pytest.mark.parametrize("kind", ["matmul", "depthwise_nhwc", "narrow_matmul", "layer_norm"])
def test_tiles_lie_inside_each_other_and_make_the_threads(kind):
    for template in cuda_task(CUDA_KINDS[kind]).tunable.templates:
        root = template.dispatch.root_index
        for values in draw(template, 10):
            tiles = template.tile_sizes(values)[root]
            inner = GpuTileLevel.THREAD if template.intrinsic is None else GpuTileLevel.SUBGROUP
            workers = 1 if template.intrinsic is None else template.subgroup_size
            for outer, tile in zip(tiles[GpuTileLevel.WORKGROUP], tiles[inner], strict=True):
                if outer and tile:
                    assert outer % tile == 0
                    workers *= outer // tile
            if template.pipeline == "TileAndFuse" or template.intrinsic:
                assert workers == evaluated(template.threads, values)


def test_a_broken_constraint_is_named_in_words():
    template = cuda_task(CUDA_KINDS["matmul"]).tunable.templates[1]
    assert template.promoted == (0, 1)
    values = draw(template, 1)[0]
    too_many = {**values, "workgroup_d0": 50, "workgroup_d1": 96, "thread_d0": 1, "thread_d1": 1}
    assert any("at most 1024 threads" in message for message in template.violations(too_many))
    assert any("must divide workgroup_d1" in message for message in template.violations({**values, "thread_d1": 5}))


def test_promoted_operands_fill_shared_memory_up_to_its_limit():
    template = cuda_task(CUDA_KINDS["matmul_wide"]).tunable.templates[1]
    shared = next(c for c in template.constraints if "copied to shared memory" in c.message)
    # (64 + 512) * 64 elements of 4 bytes fit 166912; twice as deep, they do not.
    for depth, fits in ((64, True), (128, False)):
        sizes = {"workgroup_d0": 64, "workgroup_d1": 512, "reduction_d2": depth}
        columns = {name: np.array([size]) for name, size in sizes.items()}
        assert shared.holds(columns).tolist() == [fits]

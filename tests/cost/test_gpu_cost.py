"""The bound on a GPU: what it ranks, what it is made of, and searches that know nothing else."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from cuda_tasks import CUDA_KINDS, cuda_task

from felix_mlir.cost import AdaptedModel, CostModel, OnlineModel, ScheduleEncoder, read_machine
from felix_mlir.cost.gpu_machine import RATES_FILE, GpuMachine, read_gpu_machine
from felix_mlir.cost.inputs import DISPATCH_INPUTS, LOOP_INPUTS, OPERAND_INPUTS, STAGE_INPUTS, TERMS, NestInputs
from felix_mlir.dataset.ops import matmul
from felix_mlir.errors import RequestError
from felix_mlir.features import ConstraintProgram
from felix_mlir.schedule import LegalSpace, ScheduleTemplate
from felix_mlir.search import Observation, SearchProblem, legal_spaces
from felix_mlir.search.gradient import GradientSearcher
from felix_mlir.target import parse_target
from felix_mlir.tasks import Task

GPU = read_gpu_machine("sm_80")
KINDS = ("conv2d_nchw", "depthwise_nhwc", "elementwise", "layer_norm", "narrow_matmul", "softmax")
LARGE = matmul(2048, 2048, 2048)


def encoder_of(task: Task, template: ScheduleTemplate, machine: GpuMachine = GPU) -> ScheduleEncoder:
    assert task.tunable is not None
    return ScheduleEncoder(template, task.tunable.configured, machine)


def bounds(encoder: ScheduleEncoder, *schedules: dict[str, int]) -> list[float]:
    return torch.exp(encode(encoder, *schedules).log_bound).tolist()


def encode(encoder: ScheduleEncoder, *schedules: dict[str, int]) -> NestInputs:
    return encoder.exact(np.array([[s[knob.name] for knob in encoder.template.knobs] for s in schedules]))


def tiles(workgroup: int, thread: int, reduction: int) -> dict[str, int]:
    square = {"workgroup_d0": workgroup, "workgroup_d1": workgroup, "thread_d0": thread, "thread_d1": thread}
    return {**square, "reduction_d2": reduction}


@pytest.mark.parametrize("kind", KINDS)
def test_an_untrained_model_predicts_the_bound_of_every_template(kind):
    task = cuda_task(CUDA_KINDS[kind])
    model = AdaptedModel(CostModel.untrained(), [], torch.zeros(0), torch.zeros(0))
    for template in task.tunable.templates:
        inputs = encoder_of(task, template).exact(LegalSpace(template).sample(12, np.random.default_rng(0)))
        sizes = (inputs.stage.shape[-1], inputs.operand.shape[-1], inputs.loop.shape[-1], inputs.dispatch.shape[-1])
        assert sizes == (STAGE_INPUTS, OPERAND_INPUTS, LOOP_INPUTS, DISPATCH_INPUTS)
        for part in (inputs.stage, inputs.operand, inputs.loop, inputs.dispatch, inputs.log_bound, inputs.terms):
            assert torch.isfinite(part).all()
        assert (inputs.terms >= 0).all()
        assert inputs.terms.shape[-1] == len(TERMS)
        torch.testing.assert_close(model.predict(inputs).mean, inputs.log_bound)
        assert (torch.exp(inputs.log_bound) >= GPU.rates.launch_s).all()


@pytest.mark.parametrize("kind", KINDS)
def test_relaxed_inputs_tend_to_the_exact_ones(kind):
    task = cuda_task(CUDA_KINDS[kind])
    for template in task.tunable.templates:
        encoder = encoder_of(task, template)
        points = LegalSpace(template).sample(8, np.random.default_rng(2))
        ((structure, _),) = encoder.grouped(points)
        exact = encoder.exact(points)
        relaxed = encoder.relaxed(structure, torch.from_numpy(points).double(), temperature=1e-7)
        for name in ("stage", "operand", "loop", "dispatch", "log_bound"):
            np.testing.assert_allclose(getattr(relaxed, name), getattr(exact, name), rtol=1e-3, atol=2e-2, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_penalties_are_zero_on_legal_points_alone(kind):
    for template in cuda_task(CUDA_KINDS[kind]).tunable.templates:
        program = ConstraintProgram(template.constraints, [knob.name for knob in template.knobs])
        rng = np.random.default_rng(4)
        legal = LegalSpace(template).sample(50, rng)
        drawn = np.stack([rng.choice(knob.options, size=200) for knob in template.knobs], axis=1)
        assert program.penalties(torch.from_numpy(legal).double(), temperature=0.0).abs().max() < 1e-9
        penalties = program.penalties(torch.from_numpy(drawn).double(), temperature=0.0)
        broken = ~template.satisfied(drawn)
        assert (penalties.numpy()[broken] > 1e-3).all()
        assert (penalties.numpy()[~broken] < 1e-9).all()


def test_good_schedules_of_a_matmul_are_told_from_bad_ones():
    task = cuda_task(LARGE)
    for template in task.tunable.templates:
        good, lonely, tiny, column = bounds(
            encoder_of(task, template), tiles(128, 8, 32), tiles(8, 8, 32), tiles(8, 1, 1), tiles(32, 32, 2048)
        )
        assert lonely > 4 * good
        assert tiny > 1.5 * good
        assert column > 4 * good
        # Near what the scalar units can do, not beyond it.
        assert 2 * 2048**3 / GPU.rates.flops["f32"] <= good < 1.5 * 2048**3 * 2 / GPU.rates.flops["f32"]


def test_a_matrix_intrinsic_is_faster_than_scalar_code():
    task = cuda_task(CUDA_KINDS["narrow_matmul"])
    (template, *_) = task.tunable.templates
    inputs = encoder_of(task, template).exact(LegalSpace(template).sample(4, np.random.default_rng(0)))
    slow = replace(GPU, rates=replace(GPU.rates, matrix_flops=dict.fromkeys(GPU.rates.matrix_flops, 1e9)))
    scalar = encoder_of(task, template, slow).exact(LegalSpace(template).sample(4, np.random.default_rng(0)))
    assert (scalar.log_bound > inputs.log_bound + math.log(2)).all()


def test_a_wave_that_hardly_begins_costs_a_whole_one():
    """128 workgroups on 128 multiprocessors, and on one fewer."""
    task = cuda_task(LARGE)
    (template, *_) = task.tunable.templates
    knobs = {**tiles(256, 16, 16), "workgroup_d1": 128}  # 8 * 16 workgroups
    whole, split = (replace(GPU, limits=replace(GPU.limits, cores=cores)) for cores in (128, 127))
    fits, spills = (encoder_of(task, template, machine) for machine in (whole, split))
    assert fits.features(np.array(list(_ordered(template, knobs))))["dispatch/core_use"] == 1
    (a,), (b,) = bounds(fits, knobs), bounds(spills, knobs)
    # The same rates on either: what is lost is the second round, in which one multiprocessor works.
    assert b - GPU.rates.launch_s == pytest.approx(2 * 127 / 128 * (a - GPU.rates.launch_s), rel=0.01)


def _ordered(template: ScheduleTemplate, values: dict[str, int]) -> list[int]:
    return [values[knob.name] for knob in template.knobs]


def test_slower_resources_never_lower_the_bound():
    task = cuda_task(CUDA_KINDS["conv2d_nchw"])
    (template, *_) = task.tunable.templates
    points = LegalSpace(template).sample(32, np.random.default_rng(1))
    base = encoder_of(task, template).exact(points).log_bound
    for name in ("on_chip_bytes_s", "l2_bytes_s", "memory_bytes_s"):
        slower = replace(GPU, rates=replace(GPU.rates, **{name: getattr(GPU.rates, name) / 100}))
        bound = encoder_of(task, template, slower).exact(points).log_bound
        assert (bound >= base - 1e-5).all()
    small = replace(GPU, limits=replace(GPU.limits, registers=1024, resident_workgroups=1))
    assert (encoder_of(task, template, small).exact(points).log_bound >= base - 1e-5).all()


def test_the_gradient_searcher_proposes_candidates_with_no_data():
    task = cuda_task(LARGE)
    spaces = tuple(legal_spaces(task.tunable.templates))
    model = lambda: OnlineModel(CostModel.untrained(), GPU)  # noqa: E731
    searcher = GradientSearcher(SearchProblem(task.id, spaces, task.tunable.configured, 16, model, ()), seed=0)
    proposed = searcher.propose(8)
    assert len({candidate.key for candidate in proposed}) == 8
    encoders = {template.name: encoder_of(task, template) for template in task.tunable.templates}
    found = [bounds(encoders[c.template], dict(c.values))[0] for c in proposed]
    template = task.tunable.templates[0]
    drawn = encoders[template.name].exact(LegalSpace(template).sample(200, np.random.default_rng(0))).log_bound
    assert min(found) <= torch.exp(drawn).min()
    searcher.observe([Observation(candidate, 2 * bound) for candidate, bound in zip(proposed, found, strict=True)])
    assert not {c.key for c in searcher.propose(4)} & {c.key for c in proposed}


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89"])
def test_every_target_has_a_machine_and_its_source(arch):
    assert read_machine(parse_target(f"cuda:{arch}")) == read_gpu_machine(arch)
    entry = json.loads(RATES_FILE.read_text())[arch]
    assert entry["source"].startswith("NVIDIA ")
    machine = read_gpu_machine(arch)
    assert machine.rates.matrix_flops["f16_f16"] > machine.rates.flops["f16"] >= machine.rates.flops["f32"]
    assert machine.rates.on_chip_bytes_s > machine.rates.l2_bytes_s > machine.rates.memory_bytes_s
    assert machine.with_vectors_of(8).limits.vector_bytes == 8


def test_a_file_can_stand_in_for_the_table(tmp_path, monkeypatch):
    entry = json.loads(RATES_FILE.read_text())["sm_86"]
    entry["rates"]["launch_s"] = 1.0
    file = tmp_path / "rates.json"
    file.write_text(json.dumps(entry))
    monkeypatch.setenv("FELIX_MLIR_RATES", str(file))
    assert read_gpu_machine("sm_99").rates.launch_s == 1.0
    del entry["rates"]["memory_bytes_s"]
    file.write_text(json.dumps(entry))
    with pytest.raises(RequestError, match="'memory_bytes_s' is None"):
        read_gpu_machine("sm_86")
    monkeypatch.delenv("FELIX_MLIR_RATES")
    with pytest.raises(RequestError, match="no rates for sm_99"):
        read_gpu_machine("sm_99")

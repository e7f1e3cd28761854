"""The cost model: what it sees, what it promises with no data, and how it learns."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from cost_inputs import made_up_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from ops import KINDS
from search_problems import MACHINE, RATES

from felix_mlir.cost import AdaptedModel, CostModel, Machine, NestInputs, OnlineModel, ScheduleEncoder
from felix_mlir.cost.fit import Measured, Schedule
from felix_mlir.cost.inputs import DISPATCH_INPUTS, LOOP_INPUTS, OPERAND_INPUTS, STAGE_INPUTS, concatenate
from felix_mlir.cost.rates import MachineRates
from felix_mlir.cost.training import train
from felix_mlir.errors import RequestError
from felix_mlir.schedule import LegalSpace

SHORT = Schedule(steps=150, rate=3e-3, tasks=4, points=48)


def truth(inputs: NestInputs, bend: float = 0.0) -> torch.Tensor:
    """A log latency that depends on the inputs in a way a network can learn."""
    return inputs.log_bound + 0.5 * inputs.stage[:, 0, 0] + torch.relu(inputs.dispatch[:, 1]) + bend


def encoder_of(tasks_of, kind):
    tunable = tasks_of(kind).root.tunable
    template = tunable.templates[0]
    return ScheduleEncoder(template, tunable.configured, MACHINE), LegalSpace(template)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_op_has_finite_inputs_of_one_length(tasks_of, kind):
    encoder, space = encoder_of(tasks_of, kind)
    inputs = encoder.exact(space.sample(12, np.random.default_rng(0)))
    assert inputs.stage.shape[-1] == STAGE_INPUTS
    assert inputs.operand.shape[-1] == OPERAND_INPUTS
    assert inputs.loop.shape[-1] == LOOP_INPUTS
    assert inputs.dispatch.shape == (12, DISPATCH_INPUTS)
    for part in (inputs.stage, inputs.operand, inputs.loop, inputs.dispatch, inputs.log_bound, inputs.terms):
        assert torch.isfinite(part).all()
    assert (inputs.terms >= 0).all()


@pytest.mark.parametrize("kind", ["matmul", "conv2d_nchw", "softmax"])
def test_the_bound_grows_with_slower_machines_and_never_undercuts_a_launch(tasks_of, kind):
    encoder, space = encoder_of(tasks_of, kind)
    points = space.sample(16, np.random.default_rng(1))
    bound = torch.exp(encoder.exact(points).log_bound)
    assert (bound >= RATES.launch_s).all()
    slower = MachineRates(**{**vars(RATES), "flops": {t: f / 10 for t, f in RATES.flops.items()}})
    other = ScheduleEncoder(encoder.template, encoder._configured, Machine(MACHINE.limits, slower))
    assert (torch.exp(other.exact(points).log_bound) >= bound * 0.999).all()


@pytest.mark.parametrize("kind", ["matmul", "conv2d_nchw", "softmax"])
def test_relaxed_inputs_tend_to_the_exact_ones(tasks_of, kind):
    encoder, space = encoder_of(tasks_of, kind)
    points = space.sample(10, np.random.default_rng(2))
    structure, rows = next(encoder.grouped(points))
    exact = encoder.exact(points[rows])
    relaxed = encoder.relaxed(structure, torch.from_numpy(points[rows]).double(), temperature=1e-5)
    for name in ("stage", "operand", "loop", "dispatch", "log_bound"):
        np.testing.assert_allclose(getattr(relaxed, name), getattr(exact, name), rtol=1e-3, atol=2e-2, err_msg=name)


@pytest.mark.parametrize("kind", ["matmul", "conv2d_nchw", "softmax"])
def test_gradients_of_a_prediction_equal_finite_differences(tasks_of, kind):
    encoder, space = encoder_of(tasks_of, kind)
    points = space.sample(4, np.random.default_rng(3))
    structure, rows = next(encoder.grouped(points))
    network = CostModel.untrained().network.double()
    torch.nn.init.normal_(network.output.weight)
    # Between the integers: on them, where a tile fills its loop say, many inputs have a corner.
    between = torch.log(torch.from_numpy(points[rows]).double() + 0.37)
    x = between.requires_grad_()

    def predicted(logs: torch.Tensor) -> torch.Tensor:
        inputs = encoder.relaxed(structure, torch.exp(logs), temperature=0.5)
        return (inputs.log_bound + network(inputs).mean(dim=0)).sum()

    (gradient,) = torch.autograd.grad(predicted(x), x)
    step, differences = 1e-7, torch.zeros_like(x)
    with torch.no_grad():
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                up, down = x.clone(), x.clone()
                up[i, j] += step
                down[i, j] -= step
                differences[i, j] = (predicted(up) - predicted(down)) / (2 * step)
    # At a kink (a maximum of two terms, a clipped input) the two need not agree: allow a few.
    agree = torch.isclose(gradient, differences, rtol=1e-3, atol=1e-4)
    assert agree.float().mean() > 0.95


def test_an_untrained_model_is_the_bound():
    inputs = made_up_inputs(30, 0)
    prediction = AdaptedModel(CostModel.untrained(), [], torch.zeros(0), torch.zeros(0)).predict(inputs)
    torch.testing.assert_close(prediction.mean, inputs.log_bound)


def test_training_learns_across_tasks_and_is_reproducible():
    tables = [Measured(f"t{i}", (x := made_up_inputs(80, i)), truth(x)) for i in range(6)]
    model = train(tables, seed=1, schedule=SHORT)
    unseen = made_up_inputs(100, 99)
    with torch.no_grad():
        predicted = (unseen.log_bound + model.network(unseen)).mean(dim=0)
    assert np.corrcoef(predicted - unseen.log_bound, truth(unseen) - unseen.log_bound)[0, 1] > 0.5
    assert model.tasks == {f"t{i}" for i in range(6)}
    again = train(tables, seed=1, schedule=SHORT)
    for a, b in zip(model.network.state_dict().values(), again.network.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.fixture(scope="module")
def trained() -> CostModel:
    return train([Measured(f"t{i}", (x := made_up_inputs(80, i)), truth(x)) for i in range(4)], schedule=SHORT)


def test_a_model_is_read_as_it_was_written(trained, tmp_path):
    trained.save(tmp_path / "w.safetensors")
    again = CostModel.load(tmp_path / "w.safetensors")
    assert again.card == trained.card
    inputs = made_up_inputs(20, 5)
    a, b = (AdaptedModel(m, [], torch.zeros(0), torch.zeros(0)).predict(inputs) for m in (trained, again))
    assert torch.equal(a.mean, b.mean)
    assert torch.equal(a.deviation, b.deviation)


@pytest.mark.parametrize("damage", ["missing", "empty", "text", "cut", "foreign"])
def test_a_file_that_is_no_model_is_refused(trained, tmp_path, damage):
    path = tmp_path / "w.safetensors"
    trained.save(path)
    if damage == "missing":
        path.unlink()
    elif damage == "foreign":
        from safetensors.torch import save_file

        save_file({"x": torch.zeros(1)}, path)
    else:
        path.write_bytes({"empty": b"", "text": b"hello", "cut": path.read_bytes()[:1000]}[damage])
    with pytest.raises(RequestError, match=r"w\.safetensors"):
        CostModel.load(path)


def adapt(model: CostModel, inputs: NestInputs, latencies: torch.Tensor) -> AdaptedModel:
    return AdaptedModel(model, [inputs], latencies, torch.ones(len(latencies)))


def test_adapting_corrects_what_the_op_at_hand_does_differently(trained):
    """A machine that is twice as slow, say: a dozen measurements must move all predictions."""
    seen, unseen = made_up_inputs(12, 50), made_up_inputs(60, 51)
    before = AdaptedModel(trained, [], torch.zeros(0), torch.zeros(0)).predict(unseen).mean
    after = adapt(trained, seen, truth(seen, bend=math.log(2))).predict(unseen).mean
    target = truth(unseen, bend=math.log(2))
    assert (after - target).abs().mean() < 0.9 * (before - target).abs().mean()


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(10)))
def test_the_order_of_measurements_does_not_matter(order):
    # An untrained model has the worst conditioned equations.
    model, seen, unseen = CostModel.untrained(), made_up_inputs(10, 60), made_up_inputs(30, 61)
    rows = torch.tensor(order)
    a = adapt(model, seen, truth(seen)).predict(unseen)
    b = adapt(model, seen.select(rows), truth(seen)[rows]).predict(unseen)
    torch.testing.assert_close(a.mean, b.mean, rtol=0, atol=1e-5)


def test_what_was_measured_is_less_uncertain(trained):
    seen = made_up_inputs(10, 70)
    before = AdaptedModel(trained, [], torch.zeros(0), torch.zeros(0)).predict(seen).deviation
    after = adapt(trained, seen, truth(seen)).predict(seen).deviation
    assert after.mean() < before.mean()


def test_other_tasks_of_a_run_count_but_less(trained):
    def shift(model: OnlineModel, task: str) -> float:
        inputs = made_up_inputs(40, 81)
        with torch.no_grad():
            return float((model.adapted(task).predict(inputs).mean - truth(inputs)).mean())

    model = OnlineModel(trained, MACHINE)
    base = shift(model, "b")
    seen = made_up_inputs(20, 80)
    model.observe("a", seen, truth(seen, bend=1.0))
    assert shift(model, "a") > shift(model, "b") > base


def test_all_who_ask_about_a_template_share_what_was_derived(tasks_of, trained):
    tunables = [tasks_of(kind).root.tunable for kind in ("matmul", "conv2d_nchw")]
    model = OnlineModel(trained, MACHINE)
    (one, other) = ({model.encoder(t.templates[0], t.configured, t.vector_bytes) for _ in range(2)} for t in tunables)
    assert len(one) == len(other) == len(one | other) - 1 == 1
    (encoder,) = one
    assert encoder.machine.limits.vector_bytes == tunables[0].vector_bytes


def test_batches_of_different_nests_become_one():
    small, large = made_up_inputs(5, 0, stages=1, operands=2, loops=2), made_up_inputs(7, 1, stages=3, operands=4)
    small.is_operand[:], small.is_stage[:], small.is_loop[:] = True, True, True
    whole = concatenate([small, large])
    assert len(whole) == 12
    network = CostModel.untrained().network
    torch.nn.init.normal_(network.output.weight)
    with torch.no_grad():
        apart = torch.cat([network(small), network(large)], dim=1)
        torch.testing.assert_close(network(whole), apart, rtol=1e-4, atol=1e-4)

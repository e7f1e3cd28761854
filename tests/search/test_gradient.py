"""Gradient search: its bookkeeping, which is where Felix went wrong (method notes 4.3), and what it finds."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from search_problems import MACHINE, RATES, make_problem

from felix_mlir.cost import Machine
from felix_mlir.cost import encoder as encoder_module
from felix_mlir.cost.layout import LOOP_ROLES, SLOTS
from felix_mlir.cost.model import Prediction
from felix_mlir.cost.rates import ELEMENT_TYPES, MachineRates
from felix_mlir.features import UnsupportedNestError
from felix_mlir.schedule import UnsupportedDispatchError
from felix_mlir.search import Candidate, Observation, RandomSearcher, UnsearchableError
from felix_mlir.search.descent import Descent, Steps
from felix_mlir.search.gradient import GradientSearcher
from felix_mlir.symbolic import ReadError, TilingError

# Of a loop's inputs, the log of its tile in the innermost slot.
_INNERMOST = LOOP_ROLES + len(SLOTS)


@pytest.fixture
def task(tasks_of):
    return tasks_of("matmul_wide").root


def cost(candidate: Candidate) -> float:
    """A smooth stand-in for a latency, best at one place."""
    ideal = {"distribution_d0": 32, "distribution_d1": 128, "vector_d0": 4, "vector_d1": 32, "vector_d2": 8}
    return 1e-3 * math.exp(0.3 * sum(abs(math.log2(candidate.values[name] / size)) for name, size in ideal.items()))


def observed(candidates):
    return [Observation(candidate, cost(candidate)) for candidate in candidates]


def test_a_score_stays_with_its_candidate(task):
    """4.3.1: what is predicted for a candidate is what the ranking used for it, whatever was dropped on the way."""
    searcher = GradientSearcher(make_problem(task), 0)
    searcher.observe(observed(searcher.propose(12)))
    (name, space), model = next(iter(searcher.spaces.items())), searcher._model.adapted(task.id)
    scored = searcher._explore(name, model)
    again = searcher._score(name, model, scored.points[::-1].copy())
    np.testing.assert_allclose(again.mean[::-1], scored.mean, rtol=1e-4)
    ranked = list(searcher._ranked([scored], 8))
    means = {tuple(point): mean for point, mean in zip(scored.points.tolist(), scored.mean, strict=True)}
    known = [candidate for candidate in ranked if tuple(space.point(candidate.values)) in means]
    assert len(known) == len(ranked)
    # The first is the best by mean and deviation together of all that are new.
    worth = scored.mean - 0.5 * scored.deviation
    fresh = [not searcher.is_known(Candidate(name, space.values(p))) for p in scored.points]
    assert tuple(space.point(ranked[0].values)) == tuple(scored.points[np.where(fresh, worth, np.inf).argmin()])


def test_nothing_is_proposed_twice_across_rounds_restarts_and_templates(task):
    """4.3.2: the history starts empty and must not stay so; its key has the template."""
    problem = make_problem(task)
    searcher, seen = GradientSearcher(problem, 3), []
    for _ in range(5):
        batch = searcher.propose(8)
        seen += batch
        searcher.observe(observed(batch))
    assert len({candidate.key for candidate in seen}) == len(seen) == 40
    later = GradientSearcher(make_problem(task), 3)
    later.observe(observed(seen))
    assert not {c.key for c in later.propose(24)} & {c.key for c in seen}


def test_each_restart_begins_with_a_fresh_adam_state(task, monkeypatch):
    """4.3.3: moments and rates of one place say nothing of another. Steps are those of torch's own Adam."""
    problem = make_problem(task)
    searcher = GradientSearcher(problem, 0)
    space = problem.spaces[0]
    encoder = searcher._encoders[space.template.name]
    descent, model = Descent(space, encoder), searcher._model.adapted(task.id)
    points = space.sample(6, np.random.default_rng(0))
    temperatures = [8.0, 4.0, 2.0]
    descent.run(model, points, Steps(9, 3))
    # Of gradients that do not amplify rounding errors.
    monkeypatch.setattr(descent, "_gradient", lambda _model, x, _groups, t: t * torch.sin(3 * x.detach()))

    x = torch.log(torch.from_numpy(points).float()).requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.35)
    for temperature in temperatures:
        x.grad = temperature * torch.sin(3 * x.detach())
        optimizer.step()
        with torch.no_grad():
            x.clamp_(torch.zeros_like(descent._highest), descent._highest)
    for _ in range(2):
        reached = descent._descend(model, points, temperatures)
        np.testing.assert_allclose(reached, x.detach().numpy(), rtol=1e-4, atol=1e-4)


def test_gradients_are_clipped_before_the_step_and_not_after(monkeypatch):
    """4.3.4: clipping behind the optimiser's step has no effect."""
    from felix_mlir.cost import fit as fitting
    from felix_mlir.cost.network import Ensemble

    order = []
    clip, step = torch.nn.utils.clip_grad_norm_, torch.optim.AdamW.step
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *a, **k: (order.append("clip"), clip(*a, **k)))
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self, *a, **k: (order.append("step"), step(self, *a, **k))[1])
    from cost_inputs import made_up_inputs

    inputs = made_up_inputs(20, seed=0)
    measured = fitting.Measured("a", inputs, torch.randn(20))
    fitting.fit(Ensemble(0), [measured], fitting.Schedule(3, 1e-3, 1, 8), 0)
    assert order == ["clip", "step"] * 3


def test_candidates_are_judged_exactly_at_their_integers(task):
    """4.3.6, 4.3.8: nothing relaxed decides what is legal or which candidate is better."""
    problem = make_problem(task)
    searcher = GradientSearcher(problem, 1)
    (template,) = task.tunable.templates
    batch = searcher.propose(60)
    assert all(template.violations(candidate.values) == [] for candidate in batch)
    encoder = searcher._encoders[template.name]
    points = np.stack([problem.spaces[0].point(candidate.values) for candidate in batch])
    exact = encoder.exact(points)
    for structure, rows in encoder.grouped(points):
        relaxed = encoder.relaxed(structure, torch.from_numpy(points[rows]).double(), temperature=1e-4)
        np.testing.assert_allclose(relaxed.log_bound, exact.log_bound[rows], rtol=1e-3, atol=1e-2)


def test_the_machine_s_limits_are_part_of_what_is_learned_from(task):
    """4.3.9: what was derived for one machine is not used for another."""
    problem = make_problem(task)
    encoder = GradientSearcher(problem, 0)._encoders[task.tunable.templates[0].name]
    slow = Machine(MACHINE.limits, MachineRates(**{**vars(RATES), "flops": dict.fromkeys(ELEMENT_TYPES, 1e9)}))
    other = type(encoder)(encoder.template, task.tunable.configured, slow)
    points = problem.spaces[0].sample(5, np.random.default_rng(0))
    assert (other.exact(points).log_bound > encoder.exact(points).log_bound + 1).all()


def test_some_proposals_owe_nothing_to_the_model(task, monkeypatch):
    """4.3.11: a model that is wrong everywhere is found out."""
    searcher = GradientSearcher(make_problem(task), 0)
    drawn = []
    draw = searcher.draw
    monkeypatch.setattr(searcher, "draw", lambda: drawn.append(draw()) or drawn[-1])
    batch = searcher.propose(40)
    assert sum(candidate in drawn for candidate in batch) >= 3


def test_the_same_seed_and_the_same_store_give_the_same_proposals(task):
    def proposals(seed, history):
        searcher = GradientSearcher(make_problem(task), seed)
        searcher.observe(history)
        return [candidate.key for candidate in searcher.propose(12)]

    history = observed(RandomSearcher(make_problem(task), 9).propose(20))
    assert proposals(1, history) == proposals(1, history)
    assert proposals(1, history) != proposals(2, history)


def test_it_finds_what_its_model_knows_and_learns_what_it_does_not(task):
    """Latencies that follow the bound up to a term the model has to learn: better than evolution, and than itself."""
    from felix_mlir.search import EvolutionarySearcher

    problem = make_problem(task)
    encoder = GradientSearcher(problem, 0)._encoders[task.tunable.templates[0].name]

    def latency(candidate: Candidate) -> float:
        inputs = encoder.exact(problem.spaces[0].point(candidate.values)[None, :])
        tile = inputs.loop[0, -1, :, _INNERMOST].sum()
        # Tiles that the bound alone does not lead to.
        return float(torch.exp(inputs.log_bound[0] + (tile - 6).abs()))

    def best(searcher, is_told=True):
        found = []
        for _ in range(4):
            batch = searcher.propose(8)
            found += [latency(candidate) for candidate in batch]
            searcher.observe([Observation(c, s if is_told else None) for c, s in zip(batch, found[-8:], strict=True)])
        return math.log(min(found))

    seeds = range(2)
    learned = sum(best(GradientSearcher(make_problem(task), seed)) for seed in seeds)
    untold = sum(best(GradientSearcher(make_problem(task), seed), is_told=False) for seed in seeds)
    evolved = sum(best(EvolutionarySearcher(make_problem(task), seed)) for seed in seeds)
    assert learned < evolved
    assert learned <= untold


def test_descent_goes_down_and_only_through_candidates(task):
    """A made-up model with a known minimum: what descent meets is legal, and better than where it began."""
    problem = make_problem(task)
    space = problem.spaces[0]
    encoder = GradientSearcher(problem, 0)._encoders[space.template.name]

    def predict(inputs):
        # Prefers tiles of the vectorised op that hold 1,000 iterations, whatever else.
        mean = (inputs.loop[:, -1, :, _INNERMOST].sum(dim=1) - math.log2(1000)).abs()
        return Prediction(mean, torch.zeros_like(mean))

    model = SimpleNamespace(predict=predict)
    drawn = space.sample(16, np.random.default_rng(2))
    # The worst of them: on some vector widths a draw already is at the minimum.
    start = drawn[predict(encoder.exact(drawn)).mean.argsort(descending=True)[:4]]
    met = Descent(space, encoder).run(model, start, Steps(16, 8))
    assert space.template.satisfied(met).all()
    score = [predict(encoder.exact(points)).mean.min() for points in (start, met)]
    assert score[1] < score[0]


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("tile_symbolically", UnsupportedDispatchError),
        ("tile_symbolically", TilingError),
        ("read_nest", ReadError),
        ("derive_features", UnsupportedNestError),
    ],
)
def test_a_dispatch_without_features_is_refused_with_the_reason(task, monkeypatch, step, error):
    def refuse(*_arguments):
        raise error("two loops of one dimension")

    monkeypatch.setattr(encoder_module, step, refuse)
    with pytest.raises(UnsearchableError, match="two loops of one dimension"):
        GradientSearcher(make_problem(task), 0)

"""Gradient descent on predicted latency: many starting points of one template at once, in log space."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from felix_mlir.cost import AdaptedModel, ScheduleEncoder
from felix_mlir.features import ConstraintProgram
from felix_mlir.schedule import Space
from felix_mlir.symbolic import Structure

# torch.optim imports torch._dynamo, which takes a second: Adam is four lines (Kingma and Ba, algorithm 1).
_RATE, _MEAN_DECAY, _SQUARE_DECAY, _EPSILON = 0.35, 0.9, 0.999, 1e-8
_STRUCTURES = 2
# At first the trend of the features over whole factors counts, at last mostly their interpolation between integers;
# colder than that, slopes hold for fractions of a unit only, and every point is projected and scored exactly anyway.
_WARM, _COLD = 8.0, 0.5
_BROKEN = 0.05
# Felix's GRAD_RATIO_TARGET is 5 with no projection in between; here a broken constraint only has to win.
_PENALTY_RATIO = 2.0


@dataclass(frozen=True)
class Steps:
    """`count` steps of Adam in all, projected to the lattice after every `period` of them."""

    count: int
    period: int


class Descent:
    """Descends in one space. Points leave it only as candidates of the space, which are scored elsewhere, exactly."""

    def __init__(self, space: Space, encoder: ScheduleEncoder) -> None:
        self._space = space
        self._encoder = encoder
        self._constraints = ConstraintProgram(space.template.constraints, space.knobs)
        largest = [max(knob.options) for knob in space.template.knobs]
        self._highest = torch.log(torch.tensor(largest, dtype=torch.float32))

    def run(self, model: AdaptedModel, points: np.ndarray, steps: Steps) -> np.ndarray:
        """Descend from candidates [n, knobs]; returns all candidates met on the way, integers [m, knobs].

        After every projection each point goes on from the best candidate it has met, by exact prediction, with a fresh
        Adam state: what the moments say of the old place is wrong at the new one.
        """
        points = self._of_common_structures(points)
        if not len(points):
            return points
        best = points.copy()
        best_score = self._score(model, best)
        met = [points]
        for start in range(0, steps.count, steps.period):
            progress = np.linspace(start, start + steps.period, steps.period, endpoint=False) / steps.count
            reached = self._descend(model, best, [_WARM * (_COLD / _WARM) ** p for p in progress])
            rows, candidates = self._space.snap(np.exp(reached))
            known = [self._encoder.is_compiled(structure) for structure in self._encoder.structures_of(candidates)]
            rows, candidates = rows[known], candidates[known]
            if not len(rows):
                break
            met.append(candidates)
            score = self._score(model, candidates)
            better = score < best_score[rows]
            best[rows[better]], best_score[rows[better]] = candidates[better], score[better]
        return np.unique(np.concatenate(met), axis=0)

    def _of_common_structures(self, points: np.ndarray) -> np.ndarray:
        """Keep the points of the commonest loop structures: a step costs as much for a structure's one as for all."""
        structures = self._encoder.structures_of(points)
        common = {structure for structure, _ in Counter(structures).most_common(_STRUCTURES)}
        return points[[structure in common for structure in structures]]

    def _score(self, model: AdaptedModel, points: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model.predict(self._encoder.exact(points)).mean.numpy()

    def _descend(self, model: AdaptedModel, points: np.ndarray, temperatures: list[float]) -> np.ndarray:
        """Take one step per temperature; returns logs of real sizes [n, knobs]."""
        x = torch.log(torch.from_numpy(points).float())
        groups = list(self._encoder.grouped(points))
        mean, square = torch.zeros_like(x), torch.zeros_like(x)
        for step, temperature in enumerate(temperatures, start=1):
            gradient = self._gradient(model, x.requires_grad_(), groups, temperature)
            mean = torch.lerp(gradient, mean, _MEAN_DECAY)
            square = torch.lerp(gradient**2, square, _SQUARE_DECAY)
            scale = torch.sqrt(square / (1 - _SQUARE_DECAY**step)) + _EPSILON
            x = x.detach() - _RATE * mean / (1 - _MEAN_DECAY**step) / scale
            x = x.clamp(torch.zeros_like(self._highest), self._highest)
        return x.double().numpy()

    def _gradient(
        self, model: AdaptedModel, x: Tensor, groups: list[tuple[Structure, np.ndarray]], temperature: float
    ) -> Tensor:
        """The direction to go against: the gradient of the prediction, and of the penalty as far as there is one.

        Each point's penalty gradient is scaled to a fixed ratio of its prediction's, so that the unit of neither
        matters.
        """
        cost = x.new_zeros(())
        for structure, rows in groups:
            inputs = self._encoder.relaxed(structure, torch.exp(x[rows]), temperature)
            cost = cost + model.predict(inputs).mean.sum()
        (of_cost,) = torch.autograd.grad(cost, x)
        penalty = self._constraints.penalties(torch.exp(x), temperature=temperature).sum(dim=1)
        if not penalty.requires_grad:
            return torch.nan_to_num(of_cost)
        (of_penalty,) = torch.autograd.grad(penalty.sum(), x)
        ratio = of_cost.norm(dim=1) / of_penalty.norm(dim=1).clamp(min=1e-12)
        scaled = of_penalty * (_PENALTY_RATIO * ratio * (penalty.detach() > _BROKEN))[:, None]
        return torch.nan_to_num(of_cost + scaled)

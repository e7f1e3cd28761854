"""Training the ensemble: one loop, one loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from felix_mlir.cost.inputs import NestInputs, concatenate
from felix_mlir.cost.network import MEMBERS, Ensemble
from felix_mlir.cost.threads import one_thread

_RANK_WEIGHT = 1.0
# What is slow need only be known to be slow: the weight of a candidate falls with this power of its latency.
_WEIGHT_POWER = 1.0
_SMALLEST_WEIGHT = 0.05
# Two candidates this far apart in log latency are a pair to be ranked, closer ones are noise.
_PAIR_SCALE = 0.1
# Predictions this far apart in the right order are as good as ranked.
_SOFTNESS = 0.3
_DECAY = 1e-2
_GRADIENT_NORM = 1.0


@dataclass(frozen=True)
class Measured:
    """Candidates of one task that ran: `inputs` and `log_latency` [n], the log of seconds per launch."""

    task: str
    inputs: NestInputs
    log_latency: Tensor


@dataclass(frozen=True)
class Schedule:
    """How long and how fast: `steps` of Adam with a rate that rises briefly to `rate` and falls to zero as a cosine.

    Each step takes `points` candidates of each of `tasks` tasks.
    """

    steps: int
    rate: float
    tasks: int
    points: int


def fit(
    network: Ensemble,
    measured: Sequence[Measured],
    schedule: Schedule,
    seed: int,
) -> None:
    """Train `network` in place; the same arguments give the same weights.

    Loss: weighted Huber of the log error plus the logistic loss of wrongly ranked pairs of one task, summed over
    members. Every member weighs each candidate by a random number of its own (a Bayesian bootstrap), which keeps them
    different.
    """
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    inputs = concatenate([m.inputs for m in measured])
    truth = torch.cat([m.log_latency for m in measured])
    weight = torch.cat([_weight(m.log_latency) for m in measured])
    bootstrap = -torch.log(torch.rand(MEMBERS, len(truth), generator=generator))
    sizes = [len(m.log_latency) for m in measured]
    first = np.concatenate([[0], np.cumsum(sizes)])
    optimizer = torch.optim.AdamW(network.parameters(), lr=schedule.rate, weight_decay=_DECAY)
    network.train()
    with one_thread():
        for step in range(schedule.steps):
            warm_up = min(1.0, (step + 1) / (0.05 * schedule.steps + 1))
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate * warm_up * 0.5 * (1 + np.cos(np.pi * step / schedule.steps))
            chosen = rng.permutation(len(measured))[: schedule.tasks]
            # With replacement where a task has fewer: every task gives as many.
            picked = [
                rng.choice(sizes[i], schedule.points, replace=sizes[i] < schedule.points) + first[i] for i in chosen
            ]
            rows = torch.from_numpy(np.stack(picked))
            batch = inputs.select(rows.reshape(-1))
            predicted = (batch.log_bound + network(batch)).reshape(MEMBERS, *rows.shape)
            loss = _loss(predicted, truth[rows], weight[rows] * bootstrap[:, rows])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), _GRADIENT_NORM * MEMBERS)
            optimizer.step()
    network.eval()


def _weight(log_latency: Tensor) -> Tensor:
    return torch.exp(_WEIGHT_POWER * (log_latency.min() - log_latency)).clamp(min=_SMALLEST_WEIGHT)


def _loss(predicted: Tensor, truth: Tensor, weight: Tensor) -> Tensor:
    """Sum over members of the mean over tasks; `truth` is [tasks, n], the others [members, tasks, n]."""
    error = F.huber_loss(predicted, truth.expand_as(predicted), reduction="none", delta=0.5)
    absolute = (weight * error).sum(dim=2) / weight.sum(dim=2)
    gap = truth[:, :, None] - truth[:, None, :]
    importance = torch.tanh(gap.abs() / _PAIR_SCALE) * torch.maximum(weight[..., :, None], weight[..., None, :])
    margin = gap.sign() * (predicted[..., :, None] - predicted[..., None, :])
    rank = (importance * F.softplus(-margin / _SOFTNESS)).sum(dim=(2, 3)) / importance.sum(dim=(2, 3)).clamp(min=1e-6)
    return (absolute + _RANK_WEIGHT * rank).mean(dim=1).sum()

"""Gradient search: candidates that a differentiable cost model of the task predicts to be fast (Felix, section 4).

Every proposal is a candidate of its space, scored at its integer sizes: nothing relaxed reaches a measurement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from typing_extensions import override

from felix_mlir.cost import NO_FEATURES, AdaptedModel, NestInputs
from felix_mlir.cost.threads import one_thread
from felix_mlir.schedule import ListedSpace
from felix_mlir.search.descent import Descent, Steps
from felix_mlir.search.searcher import Candidate, Observation, Searcher, SearchProblem, UnsearchableError

# A round must stay cheap beside the seconds its measurements take: later ones begin where earlier ones ended.
_FIRST_STEPS, _LATER_STEPS = Steps(9, 3), Steps(3, 3)
_FIRST_SAMPLE, _LATER_SAMPLE = 768, 128
_SEEDS = 64
_BEST_MEASURED = 8
# Candidates that are refined by single moves, and how often.
_REFINED, _REFINEMENTS = 4, 2
# What a standard deviation of the prediction is worth: where the model is unsure there is more to find.
_OPTIMISM = 0.5
# Every so many proposals one is drawn at random: a model that is wrong everywhere is found out.
_RANDOM_EVERY = 10


@dataclass
class _Scored:
    """Candidates of one space: integers [n, knobs], predicted log seconds [n] and their standard deviation [n]."""

    template: str
    points: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    def best(self, count: int) -> np.ndarray:
        return self.points[np.argsort(self.mean, kind="stable")[:count]]


class GradientSearcher(Searcher):
    """Descends on the predicted latency of all templates at once, and learns from what is measured.

    Raises UnsearchableError for a dispatch without features.
    """

    def __init__(self, problem: SearchProblem, seed: int) -> None:
        super().__init__(problem, seed)
        self._task = problem.task
        self._seeds = list(problem.start)
        self._model = problem.cost_model()
        self._encoders = {
            name: self._model.encoder(space.template, problem.configured, problem.vector_bytes)
            for name, space in self.spaces.items()
        }
        self._descents = {name: Descent(space, self._encoders[name]) for name, space in self.spaces.items()}
        try:
            for name, space in self.spaces.items():
                self._encoders[name].exact(space.sample(1, np.random.default_rng(seed)))
        except NO_FEATURES as error:
            raise UnsearchableError(f"its features cannot be derived: {error}") from error
        # Where all candidates are listed none has to be looked for: they are encoded once and ranked each round.
        self._listed = {
            name: self._encoders[name].exact(space.points)
            for name, space in self.spaces.items()
            if isinstance(space, ListedSpace)
        }
        self._measured: list[tuple[float, Candidate]] = []
        self._rounds = 0
        self._offsets: dict[str, float] = {}

    @override
    def learn(self, observations: Sequence[Observation]) -> None:
        for name, space in self.spaces.items():
            found = [(o.candidate, o.latency_s) for o in observations if o.candidate.template == name]
            ran = [(candidate, latency_s) for candidate, latency_s in found if latency_s is not None]
            if ran:
                points = np.stack([space.point(candidate.values) for candidate, _ in ran])
                latencies = torch.log(torch.tensor([latency_s for _, latency_s in ran]))
                self._model.observe(self._task, self._encoders[name].exact(points), latencies)
                self._measured += [(latency_s, candidate) for candidate, latency_s in ran]
        self._measured.sort(key=lambda pair: pair[0])

    @override
    def suggestions(self, count: int) -> Iterator[Candidate | None]:
        with one_thread():
            model = self._model.adapted(self._task)
            self._offsets = self._template_offsets(model)
            scored = [self._explore(name, model) for name in sorted(self.spaces)]
        self._rounds += 1
        for number, candidate in enumerate(self._ranked(scored, count), start=1):
            if number % _RANDOM_EVERY == 0:
                yield self.draw()
            yield candidate
        while True:
            yield self.draw()

    def _template_offsets(self, model: AdaptedModel) -> dict[str, float]:
        """How much slower each template is than the model says, in log seconds.

        Templates are code generation pipelines, and features of loops do not tell two of them apart.
        """
        offsets: dict[str, float] = {}
        for name, space in self.spaces.items():
            pairs = [(seconds, c) for seconds, c in self._measured if c.template == name]
            if len(self.spaces) > 1 and pairs:
                inputs = self._encoders[name].exact(np.stack([space.point(c.values) for _, c in pairs]))
                with torch.no_grad():
                    errors = np.log([seconds for seconds, _ in pairs]) - model.predict(inputs).mean.numpy()
                # Of few measurements, a part is luck.
                offsets[name] = float(errors.sum() / (len(errors) + 1))
        return offsets

    def _explore(self, name: str, model: AdaptedModel) -> _Scored:
        """Find and score candidates of one space: drawn, descended to, and next to the best of both."""
        space = self.spaces[name]
        if isinstance(space, ListedSpace):
            return self._scored(name, model, space.points, self._listed[name])
        is_first = self._rounds == 0
        sample = space.sample(_FIRST_SAMPLE if is_first else _LATER_SAMPLE, self.rng)
        sample = self._affordable(name, sample, 2 if is_first else 1)
        known = [*self._seeds, *(candidate for _, candidate in self._measured[:_BEST_MEASURED])]
        good = [space.point(candidate.values) for candidate in known if candidate.template == name]
        drawn = np.unique(np.concatenate([sample, *(point[None] for point in good)]), axis=0)
        scored = self._score(name, model, drawn)
        # A quarter of the seeds stays random: the model may be wrong about where it is fast.
        chosen = np.concatenate([scored.best(_SEEDS * 3 // 4), sample[: _SEEDS // 4], *(p[None] for p in good)])
        met = self._descents[name].run(model, chosen, _FIRST_STEPS if is_first else _LATER_STEPS)
        scored = self._with(scored, model, met)
        for _ in range(_REFINEMENTS):
            moves = np.concatenate([space.neighbours(point) for point in scored.best(_REFINED)])
            scored = self._with(scored, model, self._affordable(name, moves, 0))
        return scored

    def _with(self, scored: _Scored, model: AdaptedModel, points: np.ndarray) -> _Scored:
        """Score those of `points` that are not among `scored` yet, and add them."""
        new = _without(np.unique(points, axis=0), scored.points)
        if not len(new):
            return scored
        more = self._score(scored.template, model, new)
        return _Scored(
            scored.template,
            np.concatenate([scored.points, more.points]),
            np.concatenate([scored.mean, more.mean]),
            np.concatenate([scored.deviation, more.deviation]),
        )

    def _affordable(self, name: str, points: np.ndarray, count: int) -> np.ndarray:
        """Keep the points whose loop structure is known, or among the `count` commonest that are not.

        Deriving the features of one takes most of a second: a dispatch of many structures gets to them in turn.
        """
        encoder = self._encoders[name]
        structures = encoder.structures_of(points)
        new = Counter(structure for structure in structures if not encoder.is_compiled(structure))
        taken = {structure for structure, _ in new.most_common(count)}
        return points[[encoder.is_compiled(s) or s in taken for s in structures]]

    def _score(self, name: str, model: AdaptedModel, points: np.ndarray) -> _Scored:
        return self._scored(name, model, points, self._encoders[name].exact(points))

    def _scored(self, name: str, model: AdaptedModel, points: np.ndarray, inputs: NestInputs) -> _Scored:
        with torch.no_grad():
            prediction = model.predict(inputs)
        mean = prediction.mean.numpy() + self._offsets.get(name, 0.0)
        return _Scored(name, points, mean, prediction.deviation.numpy())

    def _ranked(self, scored: Sequence[_Scored], count: int) -> Iterator[Candidate]:
        """Yield new candidates, the most promising first; one near an earlier one has less left to tell."""
        candidates: list[Candidate] = []
        for group in scored:
            space = self.spaces[group.template]
            candidates += [Candidate(group.template, space.values(point)) for point in group.points]
        mean = np.concatenate([group.mean for group in scored])
        unsure = np.concatenate([group.deviation for group in scored])
        fresh = np.array([not self.is_known(candidate) for candidate in candidates])
        order = np.flatnonzero(fresh)
        order = order[np.argsort(mean[order] - _OPTIMISM * unsure[order], kind="stable")][: max(256, 4 * count)]
        logs = [np.log2(list(candidates[i].values.values())) for i in order]
        news = np.ones(len(order))
        # Before anything is measured the safest comes first: what a model is unsure of can wait for the second.
        optimism = _OPTIMISM if self._measured else 0.0
        left = np.ones(len(order), dtype=bool)
        while left.any():
            worth = np.where(left, mean[order] - optimism * news * unsure[order], np.inf)
            pick = int(worth.argmin())
            left[pick] = False
            chosen = candidates[order[pick]]
            yield chosen
            optimism = _OPTIMISM
            for other in np.flatnonzero(left):
                if candidates[order[other]].template == chosen.template:
                    distance = ((logs[other] - logs[pick]) ** 2).sum()
                    news[other] = min(news[other], 1 - np.exp(-distance / 2))


def _without(points: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Drop the rows of `points` that are rows of `known`."""
    seen = {tuple(row) for row in known.tolist()}
    return points[[tuple(row) not in seen for row in points.tolist()]]

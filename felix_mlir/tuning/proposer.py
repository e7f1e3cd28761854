"""Candidates of a task in the order in which the cost model expects them to be fast."""

from __future__ import annotations

from felix_mlir.cost import OnlineModel
from felix_mlir.search import Candidate, Searcher
from felix_mlir.tasks import TunableTask
from felix_mlir.tuning.predictor import Predictor


class Proposer:
    """Asks `searcher` for candidates of the task called `task`, and `model` how fast they are.

    `own` is the compiler's own schedule as a candidate, whether or not it is among a template's options, and
    `default_s` what is predicted of a launch with it; None if no template can express it. Raises any of
    felix_mlir.cost.NO_FEATURES for a dispatch without features.
    """

    def __init__(self, task: str, tunable: TunableTask, searcher: Searcher, model: OnlineModel) -> None:
        self._searcher = searcher
        self._predictor = Predictor(task, tunable, model)
        self._templates = [template.name for template in tunable.templates]
        sizes = ((template.name, template.sizes_of(tunable.default)) for template in tunable.templates)
        self.own = next((Candidate(name, values) for name, values in sizes if values is not None), None)
        self.default_s = self._predictor.seconds(self.own.template, [self.own.values])[0] if self.own else None

    def propose(self, count: int) -> list[tuple[float, Candidate]]:
        """Return up to `count` new candidates and their predicted seconds, the fastest first."""
        proposed = self._searcher.propose(count)
        found: list[tuple[float, Candidate]] = []
        for name in self._templates:
            own = [candidate for candidate in proposed if candidate.template == name]
            found += zip(self._predictor.seconds(name, [c.values for c in own]), own, strict=True)
        return sorted(found, key=lambda pair: pair[0])

    def seconds_with(self, candidate: Candidate, workgroups: int) -> float:
        """Return the prediction for a GPU where `workgroups` of a candidate run on a multiprocessor at once."""
        return self._predictor.seconds_with(candidate.template, candidate.values, workgroups)

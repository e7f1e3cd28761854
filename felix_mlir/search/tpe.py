"""Tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), as optuna implements it: a baseline."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from typing_extensions import override

from felix_mlir.errors import RequestError
from felix_mlir.search.searcher import Candidate, Observation, Searcher, SearchProblem

_TEMPLATE = "template"


def load_optuna() -> ModuleType:
    """Import optuna; raises RequestError where the extra `tpe` is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise RequestError("the searcher tpe needs optuna: pip install 'felix-mlir[tpe]'") from error
    return optuna


class TpeSearcher(Searcher):
    """Models the sizes of good and of other candidates, each as an index into the knob's ascending options.

    What the model asks for is moved to the nearest candidate; where that is taken, to one next to it. Raises
    RequestError without optuna.
    """

    def __init__(self, problem: SearchProblem, seed: int) -> None:
        super().__init__(problem, seed)
        self._optuna = optuna = load_optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # Templates share no knob, which takes `group` in a joint model.
            sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, group=len(self.spaces) > 1, constant_liar=True
            )
        self._study = optuna.create_study(sampler=sampler)
        self._distributions = {
            name: {
                f"{name}.{knob.name}": optuna.distributions.IntDistribution(0, len(knob.options) - 1)
                for knob in space.template.knobs
            }
            for name, space in self.spaces.items()
        }
        self._names = sorted(self.spaces)
        self._choice = optuna.distributions.CategoricalDistribution(self._names)
        self._options = {
            name: [np.array(knob.options) for knob in space.template.knobs] for name, space in self.spaces.items()
        }
        self._running: dict[object, int] = {}

    @override
    def suggestions(self, count: int) -> Iterator[Candidate | None]:
        while True:
            candidate = self._ask()
            if candidate is not None and self.is_known(candidate):
                candidate = self._beside(candidate)
            if candidate is not None and not self.is_known(candidate):
                # In the study as what will be measured, so that the rest of the batch keeps away from it.
                self._running[candidate.key] = self._add(candidate, None)
            yield candidate

    @override
    def learn(self, observations: Sequence[Observation]) -> None:
        for observation in observations:
            # The estimator only ranks: a failure is worse than anything that runs.
            value = math.inf if observation.latency_s is None else observation.latency_s
            number = self._running.pop(observation.candidate.key, None)
            if number is None:
                self._add(observation.candidate, value)
            else:
                self._study.tell(number, value)

    def _ask(self) -> Candidate | None:
        """Sample the model and move to the nearest candidate; None when there is none near."""
        trial = self._study.ask()
        name = str(trial.suggest_categorical(_TEMPLATE, self._names)) if len(self._names) > 1 else self._names[0]
        indices = [trial.suggest_int(key, d.low, d.high) for key, d in self._distributions[name].items()]
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        sizes = [options[index] for options, index in zip(self._options[name], indices, strict=True)]
        _, snapped = self.spaces[name].snap(np.array([sizes], dtype=np.float64))
        return Candidate(name, self.spaces[name].values(snapped[0])) if len(snapped) else None

    def _beside(self, candidate: Candidate) -> Candidate | None:
        """Return a neighbour that is not taken, or any candidate when all are."""
        space = self.spaces[candidate.template]
        moves = [
            Candidate(candidate.template, space.values(p)) for p in space.neighbours(space.point(candidate.values))
        ]
        free = [move for move in moves if not self.is_known(move)]
        return free[self.rng.integers(len(free))] if free else self.draw()

    def _add(self, candidate: Candidate, value: float | None) -> int:
        """Enter a candidate into the study, running while it has no value; returns its number there."""
        states = self._optuna.trial.TrialState
        distributions: dict[str, Any] = dict(self._distributions[candidate.template])
        sizes = self.spaces[candidate.template].point(candidate.values)
        indices = [
            int(abs(np.log(o / s)).argmin()) for o, s in zip(self._options[candidate.template], sizes, strict=True)
        ]
        params: dict[str, Any] = dict(zip(distributions, indices, strict=True))
        if len(self._names) > 1:
            distributions[_TEMPLATE], params[_TEMPLATE] = self._choice, candidate.template
        state = states.RUNNING if value is None else states.COMPLETE
        trial = self._optuna.trial.create_trial(state=state, value=value, params=params, distributions=distributions)
        self._study.add_trial(trial)
        return len(self._study.get_trials(deepcopy=False)) - 1

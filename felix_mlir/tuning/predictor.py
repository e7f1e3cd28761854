"""The cost model's word on the schedules of one task."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from felix_mlir.cost import OnlineModel, ScheduleEncoder
from felix_mlir.cost.gpu_machine import GpuMachine
from felix_mlir.schedule import KnobValues
from felix_mlir.tasks import TunableTask


class Predictor:
    """Predicts with `model` as what it has observed by then makes it; `task` is the name it has there.

    Its methods raise any of felix_mlir.cost.NO_FEATURES for a dispatch without features.
    """

    def __init__(self, task: str, tunable: TunableTask, model: OnlineModel) -> None:
        self._task = task
        self._model = model
        self._encoders = {
            template.name: model.encoder(template, tunable.configured, tunable.vector_bytes)
            for template in tunable.templates
        }

    def observe(self, template: str, schedules: Sequence[KnobValues], seconds: Sequence[float]) -> None:
        """Show the model what launches of schedules of a template took."""
        encoder = self._encoders[template]
        if schedules:
            self._model.observe(
                self._task, encoder.exact(_points(encoder, schedules)), torch.log(torch.tensor(seconds))
            )

    def seconds(self, template: str, schedules: Sequence[KnobValues]) -> list[float]:
        """Return what a launch is predicted to take with each schedule of a template, in seconds."""
        return self._predict(self._encoders[template], schedules) if schedules else []

    def seconds_with(self, template: str, schedule: KnobValues, workgroups: int) -> float:
        """Return what a launch is predicted to take on a GPU where `workgroups` of it run on a multiprocessor at once.

        The assembler knows better than the features how many registers a thread takes.
        """
        encoder = copy.copy(self._encoders[template])
        machine = encoder.machine
        if not isinstance(machine, GpuMachine):
            raise TypeError("only a GPU has multiprocessors")
        encoder.machine = replace(machine, limits=replace(machine.limits, resident_workgroups=workgroups))
        return self._predict(encoder, [schedule])[0]

    def _predict(self, encoder: ScheduleEncoder, schedules: Sequence[KnobValues]) -> list[float]:
        with torch.no_grad():
            mean = self._model.adapted(self._task).predict(encoder.exact(_points(encoder, schedules))).mean
        return torch.exp(mean).tolist()


def _points(encoder: ScheduleEncoder, schedules: Sequence[KnobValues]) -> np.ndarray:
    return np.array([[values[knob.name] for knob in encoder.template.knobs] for values in schedules])

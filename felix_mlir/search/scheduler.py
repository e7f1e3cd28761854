"""Which task the next round goes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# A task is done after so many rounds in a row that gained less than the smallest gain worth having.
_PATIENCE = 6
_SMALLEST_GAIN = 0.01
_OPTIMISM = 0.8


@dataclass
class TaskProgress:
    """What the scheduler knows of one task.

    `cost_s` is what the task takes of one run of the model with the compiler's default; `ratios` is, after each
    round, the best latency so far relative to the default's (1.0 at first). `candidate_s` is how long building and
    timing one candidate takes.
    """

    cost_s: float
    ratios: list[float] = field(default_factory=lambda: [1.0])
    candidate_s: float = 1.0

    @property
    def finished(self) -> bool:
        recent = self.ratios[-1 - _PATIENCE :]
        return len(recent) > _PATIENCE and recent[-1] > recent[0] * (1 - _SMALLEST_GAIN)

    @property
    def expected_gain_s(self) -> float:
        """Seconds of model time the next round may save.

        Ansor's gradient (OSDI '20, section 6): what the last rounds gained, and the hope that a task worked on
        for n rounds gains a further 1/n of what it still costs.
        """
        rounds = len(self.ratios) - 1
        window = self.ratios[-4:]
        backward = (window[0] - window[-1]) / max(1, len(window) - 1)
        forward = self.ratios[-1] / (rounds + 1)
        return self.cost_s * ((1 - _OPTIMISM) * backward + _OPTIMISM * forward)


def next_task(tasks: Sequence[TaskProgress]) -> int | None:
    """Return the index of the task whose next round promises most for its time, or None when all are finished."""
    open_tasks = [index for index, task in enumerate(tasks) if not task.finished]
    return max(open_tasks, key=lambda index: tasks[index].expected_gain_s / tasks[index].candidate_s, default=None)

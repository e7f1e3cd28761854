"""Wall-clock and trial limits of a run, shared by everything that spends them."""

from __future__ import annotations

import time
from collections.abc import Callable

from felix_mlir.tuning.workspace import State


class Budget:
    """What may still be spent. Time counts from construction on top of what earlier runs in `state` used.

    `clock` returns seconds; it is a parameter so that tests need not wait.
    """

    def __init__(
        self,
        state: State,
        seconds: float | None,
        trials: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._seconds = seconds
        self._trials = trials
        self._clock = clock
        self._last = clock()

    @property
    def seconds(self) -> float | None:
        return self._seconds

    def tick(self) -> None:
        """Book the time since the last tick."""
        now = self._clock()
        self._state.spent_s += now - self._last
        self._last = now

    @property
    def elapsed_s(self) -> float:
        self.tick()
        return self._state.spent_s

    @property
    def remaining_s(self) -> float:
        """Seconds left, infinite without a time limit."""
        return float("inf") if self._seconds is None else self._seconds - self.elapsed_s

    @property
    def remaining_trials(self) -> int | None:
        """Candidates left, None without a limit."""
        return None if self._trials is None else max(0, self._trials - self._state.trials)

    def set_trials(self, number: int) -> None:
        """Say how many candidates the record store holds of what is being tuned."""
        self._state.trials = number

    @property
    def exhausted(self) -> bool:
        return self.remaining_s <= 0 or self.remaining_trials == 0

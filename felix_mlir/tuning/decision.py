"""What a task ends with."""

from __future__ import annotations

from dataclasses import dataclass

from felix_mlir.schedule import Configuration
from felix_mlir.search import Candidate


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The schedule a task ends with: `candidate` None keeps the compiler's default, and `reason` says why."""

    candidate: Candidate | None
    configuration: Configuration | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Choice(Decision):
    """A decision with what was measured.

    Latencies are seconds per launch of the isolated dispatch, default and chosen measured in turn; `ratio` is
    default over chosen with its 95 % interval.
    """

    default_s: float
    chosen_s: float
    ratio: float
    interval: tuple[float, float]

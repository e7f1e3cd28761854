"""What a run shows while it works: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from typing_extensions import override


@dataclass(frozen=True)
class TaskRow:
    """One task in the table: `trials` candidates tried, `speedup` of the best so far over the default."""

    id: str
    kind: str
    share: float
    trials: int
    speedup: float
    active: bool


class Progress(ABC):
    """Where a run reports to; use it as a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 (most displays have nothing to undo)
        """Leave the terminal as it was."""

    @abstractmethod
    def stage(self, message: str) -> None:
        """Say what begins now."""

    @abstractmethod
    def tasks(self, rows: Sequence[TaskRow], remaining_s: float) -> None:
        """Show how the tasks stand; `remaining_s` is infinite when there is no time limit."""


class SilentProgress(Progress):
    """Shows nothing; for the Python API."""

    @override
    def stage(self, message: str) -> None:
        pass

    @override
    def tasks(self, rows: Sequence[TaskRow], remaining_s: float) -> None:
        pass


class PlainProgress(Progress):
    """One line an event on standard error, for logs and pipes."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @override
    def stage(self, message: str) -> None:
        print(f"[{time.monotonic() - self._start:6.1f} s] {message}", file=sys.stderr, flush=True)

    @override
    def tasks(self, rows: Sequence[TaskRow], remaining_s: float) -> None:
        row = next((row for row in rows if row.active), None)
        if row is not None:
            self.stage(
                f"{row.kind} {row.id}: {row.trials} tried, best {row.speedup:.2f}x the default{_left(remaining_s)}"
            )


class RichProgress(Progress):
    """A table that is redrawn in place."""

    def __init__(self) -> None:
        self._message = ""
        self._rows: Sequence[TaskRow] = ()
        self._remaining_s = float("inf")
        self._live = Live(console=Console(stderr=True), get_renderable=self._render, refresh_per_second=2)

    @override
    def __enter__(self) -> Self:
        self._live.start()
        return self

    @override
    def close(self) -> None:
        self._live.stop()

    @override
    def stage(self, message: str) -> None:
        self._message = message

    @override
    def tasks(self, rows: Sequence[TaskRow], remaining_s: float) -> None:
        self._rows, self._remaining_s = rows, remaining_s

    def _render(self) -> RenderableType:
        table = Table("task", "kind", "share", "tried", "best / default", box=None, pad_edge=False)
        for row in self._rows:
            style = "bold" if row.active else ""
            table.add_row(row.id, row.kind, f"{row.share:.1%}", str(row.trials), f"{row.speedup:.2f}x", style=style)
        line = Text(f"{self._message}{_left(self._remaining_s)}", style="cyan")
        return Group(table, line) if self._rows else line


def _left(remaining_s: float) -> str:
    return "" if remaining_s == float("inf") else f" ({max(0.0, remaining_s):.0f} s left)"


def terminal_progress() -> Progress:
    """Return the progress display that suits standard error."""
    return RichProgress() if sys.stderr.isatty() else PlainProgress()

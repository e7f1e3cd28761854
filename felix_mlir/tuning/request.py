"""What a run is asked to do, and with what."""

from __future__ import annotations

from dataclasses import dataclass

from felix_mlir.importers import Model
from felix_mlir.options import TuneOptions
from felix_mlir.tuning.budget import Budget
from felix_mlir.tuning.session import Session
from felix_mlir.tuning.workspace import Workspace


@dataclass(frozen=True)
class RunRequest:
    """`source` is what the user called the model, `identity` a hash of its content."""

    model: Model
    source: str
    identity: str
    options: TuneOptions
    workspace: Workspace
    session: Session
    budget: Budget

    def first_notes(self) -> list[str]:
        """Return what a report has to say before anything is done."""
        return [self.session.target.note] if self.session.target.note else []

    def claim_folder(self) -> None:
        """Say that the results in the folder are this model's from now on."""
        self.workspace.state.claim(self.source, self.session.target.name, self.identity)

    def checkpoint(self) -> None:
        """Book the time spent so far and keep it on disk."""
        self.budget.tick()
        self.workspace.save_state()

"""The folder of a tuning run: where its files are, who may use it, and how far it got."""

from __future__ import annotations

import fcntl
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from felix_mlir.atomic import replacing
from felix_mlir.errors import RequestError
from felix_mlir.passes.tuned import FILE_NAME as CONFIGURATIONS
from felix_mlir.passes.tuning_spec import FILE_NAME as TUNING_SPEC


@dataclass
class State:
    """What a second run with the same folder must know.

    `spent_s` is the wall-clock time all runs used, `trials` the candidates they measured. `source` is what the model
    was called, `model` a hash of its content. `finished_budget` is the limit in seconds and in trials of the last run
    if that ran to its end.
    """

    source: str = ""
    target: str = ""
    model: str = ""
    spent_s: float = 0.0
    trials: int = 0
    finished_budget: tuple[float, float] | None = None

    def claim(self, source: str, target: str, model: str) -> None:
        """Say whose results the folder holds from now on; a run of it has not ended."""
        self.source, self.target, self.model, self.finished_budget = source, target, model, None


class Workspace:
    """`root` is the folder the user named; results lie in it, everything else below `root`/work.

    Use it as a context manager: it holds a lock, so that two runs never share a folder. Raises RequestError
    when the folder cannot be used.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.work = self.root / "work"
        try:
            self.work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(f"cannot use {root} for results: {error.strerror}") from error
        self._lock: IO[str] | None = None
        self.state = State()

    def __enter__(self) -> Self:
        try:
            self._lock = (self.work / "lock").open("w")
        except OSError as error:
            raise RequestError(f"cannot write to {self.root}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise RequestError(f"another run is using {self.root}: wait for it or choose another --out") from error
        if self._state_file.exists():
            try:
                self.state = State(**json.loads(self._state_file.read_text()))
            except (ValueError, TypeError) as error:
                raise RequestError(
                    f"{self._state_file} is damaged: remove it to go on with what {self.records.name} holds"
                ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.save_state()
        if self._lock is not None:
            self._lock.close()

    def save_state(self) -> None:
        write_json(self._state_file, asdict(self.state))

    @property
    def records(self) -> Path:
        return self.root / "records.db"

    @property
    def tuned(self) -> Path:
        return self.root / "tuned.vmfb"

    @property
    def default(self) -> Path:
        return self.root / "default.vmfb"

    @property
    def parameters(self) -> Path:
        return self.root / "tuned.irpa"

    @property
    def cost_model(self) -> Path:
        return self.root / "cost_model.safetensors"

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.json"

    @property
    def configurations(self) -> Path:
        return self.root / CONFIGURATIONS

    @property
    def spec(self) -> Path:
        return self.root / TUNING_SPEC

    @property
    def schedules(self) -> Path:
        return self.root / "schedules.mlir"

    @property
    def report(self) -> Path:
        return self.root / "report.json"

    @property
    def inputs(self) -> Path:
        return self.work / "inputs.npz"

    @property
    def expected(self) -> Path:
        return self.work / "expected.npz"

    @property
    def _state_file(self) -> Path:
        return self.work / "state.json"


def copy_whole(source: Path, destination: Path) -> None:
    """Copy a file so that a reader finds either the old one or the whole new one."""
    with replacing(destination) as partial:
        shutil.copyfile(source, partial)


def write_json(path: Path, data: Any) -> None:
    """Write JSON so that a reader finds either the old file or the whole new one."""
    write_whole(path, json.dumps(data, indent=2) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader finds either the old one or the whole new one."""
    with replacing(path) as partial:
        partial.write_text(text)

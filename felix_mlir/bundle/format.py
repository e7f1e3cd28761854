"""What a bundle says of itself: its manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from felix_mlir.bundle.run_bundle import FORMAT
from felix_mlir.measure import MAX_SPREAD
from felix_mlir.target import Target
from felix_mlir.tasks import TensorType
from felix_mlir.tuning.programs import CUTOFF, DEFAULT_EVERY, INPUT_SEED, RUN_TIMEOUT_S, TIMING

# Candidates that one child measures before it is replaced.
GROUP = 8


@dataclass(frozen=True)
class BundleFile:
    """A file of the archive: the digest of its content in hexadecimal, and its bytes."""

    sha256: str
    size: int


@dataclass(frozen=True)
class BundleCandidate:
    """A compiled candidate: `file` is its module in the archive.

    The compiler's default has no template when no template can express it.
    """

    template: str | None
    knobs: Mapping[str, int]
    file: str


@dataclass(frozen=True)
class BundleTask:
    """One task and its candidates, the compiler's default first, then the most promising.

    `inputs` are shapes and types of the arguments. A module launches the dispatch `repeats` times an invocation.
    `tolerance` is the largest relative error of a candidate's outputs against the default's.
    """

    id: str
    kind: str
    iteration_space: tuple[int, ...]
    element_types: str
    count: int
    inputs: tuple[TensorType, ...]
    tolerance: float
    repeats: int
    candidates: tuple[BundleCandidate, ...]


@dataclass(frozen=True)
class Manifest:
    """Everything about a bundle: what it is of, what made it, what to measure and how, and every file it holds.

    `left_out` says, for tasks without candidates, why; `files` has the archive's order.
    """

    model: str
    target: Target
    tasks: tuple[BundleTask, ...]
    left_out: Mapping[str, str]
    files: Mapping[str, BundleFile]
    compiler: str = field(default_factory=lambda: version("iree-base-compiler"))
    created_by: str = field(default_factory=lambda: f"felix-mlir {version('felix-mlir')}")
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def to_json(self) -> str:
        """Return the text of the manifest, in which all times are seconds."""
        manifest = {
            "format": FORMAT,
            "model": self.model,
            "target": self.target.name,
            "device": self.target.device,
            "compiler": self.compiler,
            "created_by": self.created_by,
            "created": self.created,
            "input_seed": INPUT_SEED,
            "timing": {
                "min_time_s": TIMING.min_time_s,
                "repetitions": TIMING.repetitions,
                "timeout_s": RUN_TIMEOUT_S,
                "cutoff": CUTOFF,
                "max_spread": MAX_SPREAD,
                "default_every": DEFAULT_EVERY,
                "group": GROUP,
            },
            "tasks": [_task(task) for task in self.tasks],
            "left_out": dict(self.left_out),
            "files": {name: asdict(file) for name, file in self.files.items()},
        }
        return json.dumps(manifest, indent=1) + "\n"


def _task(task: BundleTask) -> dict[str, Any]:
    inputs = [{"shape": list(i.shape), "dtype": i.dtype.name} for i in task.inputs]
    return {**asdict(task), "inputs": inputs}

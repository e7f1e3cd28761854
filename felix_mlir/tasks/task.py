"""A task: one kind of dispatch of a model, isolated, weighted, with the templates that fit it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from felix_mlir.schedule import Configuration, CpuLimits, Dispatch, Limits, ScheduleTemplate
from felix_mlir.tasks.isolate import TensorType

# PTX's ld.v4.b32.
_LARGEST_LOAD_BITS = 128


@dataclass(frozen=True)
class TunableTask:
    """What tuning a task takes.

    `configured` is the isolated program at the executable-configurations phase (text), with the compiler's own
    configuration `default`; `inputs` the types of the program's arguments; `templates` the ways to
    schedule it, `limits` what its executable target says of the machine.
    """

    configured: Path
    inputs: tuple[TensorType, ...]
    dispatch: Dispatch
    default: Configuration
    templates: tuple[ScheduleTemplate, ...]
    limits: Limits

    @property
    def vector_bytes(self) -> int:
        """Bytes of a vector register; on a GPU, of what a thread loads at once."""
        if isinstance(self.limits, CpuLimits):
            return self.limits.native_vector_bytes
        return (self.limits.max_load_instruction_bits or _LARGEST_LOAD_BITS) // 8


@dataclass(frozen=True)
class Task:
    """Equal dispatches of a model.

    `id` is a hash of the canonical IR and the target; `executables` the names they have in this model, `exports`
    their entry points as a profile names them, `count` how often one run of the model launches them. Exactly one
    of `tunable` and `reason` (why the compiler's default is kept) is set. `share` is the part of the model's run
    time and `launch_s` what one launch takes inside it, None before it is
    profiled.
    """

    id: str
    kind: str
    executables: tuple[str, ...]
    exports: tuple[str, ...]
    count: int
    element_types: str
    iteration_space: tuple[int, ...]
    tunable: TunableTask | None
    reason: str
    share: float | None = None
    launch_s: float | None = None

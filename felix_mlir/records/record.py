"""One measured (or failed) candidate, and its JSON form."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from felix_mlir.measure.status import Status


def plain_knobs(knobs: Mapping[str, int]) -> dict[str, int]:
    """Return a copy with Python's own integers (numpy's do not become JSON); TypeError for other types."""
    return {name: operator.index(value) for name, value in knobs.items()}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Record:
    """How one candidate of one task ended on one machine.

    `task` is the task's hash, `template` the schedule template and `knobs` its integers by name (for a whole model
    compiled another way: the model's hash, the alternative's name, no knobs). `target`, `compiler` (its version) and
    `host` are what the outcome depends on. `latency_s` is the median corrected for drift, in seconds per invocation,
    None if there is none; `samples` are seconds per invocation as measured; `reference_s` is the default's latency
    measured beside it. `message` says what went wrong, `command` reproduces it, `created` is an ISO time in UTC.

    Raises ValueError for a status OK without latency and for a time that is not positive and finite,
    TypeError for a knob that is no integer.
    """

    task: str
    template: str
    knobs: Mapping[str, int] = field(hash=False)
    target: str
    compiler: str
    host: str
    status: Status
    latency_s: float | None = None
    samples: tuple[float, ...] = ()
    reference_s: float | None = None
    message: str = ""
    command: str = ""
    created: str = field(default_factory=_now)

    def __post_init__(self) -> None:
        object.__setattr__(self, "knobs", plain_knobs(self.knobs))
        if self.status is Status.OK and self.latency_s is None:
            raise ValueError("a record with status ok needs a latency")
        for seconds in (self.latency_s, self.reference_s, *self.samples):
            if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
                raise ValueError(f"a time of {seconds} s in a record")

    def latency_beside(self, default_s: float) -> float | None:
        """The latency as if the default measured beside it had taken `default_s`; None if there is none."""
        if self.latency_s is None or not self.reference_s:
            return self.latency_s
        return self.latency_s * (default_s / self.reference_s)

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Record:
        """Return the record that to_json wrote; raises ValueError if `line` is not a whole one."""
        values: Any = json.loads(line)
        if not isinstance(values, dict) or set(values) != set(FIELDS):
            raise ValueError("not the fields of a record")
        try:
            return cls.from_values(values)
        except (TypeError, AttributeError) as problem:
            raise ValueError(f"not the values of a record: {problem}") from problem

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Record:
        """Return the record with these values of all FIELDS, given as JSON has them."""
        typed = {"status": Status(values["status"]), "samples": tuple(values["samples"])}
        arguments: dict[str, Any] = {**values, **typed}
        return cls(**arguments)


FIELDS = tuple(one.name for one in fields(Record))

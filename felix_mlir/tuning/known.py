"""What a record store knows of a task: measured here before, or elsewhere with a bundle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from felix_mlir.records import Record
from felix_mlir.schedule import ScheduleTemplate
from felix_mlir.search import Candidate, Observation


@dataclass(frozen=True)
class Known:
    """`measured` has the candidates that ran on `host` and their latency over the default's, the fastest first.

    Of several hosts it is the one that measured most. `default_s` is the default's latency there. `failed` did so on
    any host.
    """

    host: str
    default_s: float
    measured: tuple[tuple[float, Candidate], ...]
    failed: tuple[Observation, ...]


def read_known(records: Sequence[Record], templates: Sequence[ScheduleTemplate]) -> Known:
    """Sort a task's records, oldest first; of a candidate measured more than once the last counts.

    Records of templates or knobs there are no more, as of another version, are passed over.
    """
    names = {template.name: {knob.name for knob in template.knobs} for template in templates}
    usable = [record for record in records if names.get(record.template) == set(record.knobs)]
    ran = [record for record in usable if record.latency_s and record.reference_s]
    counts = Counter(record.host for record in ran)
    host = max(counts, key=lambda name: counts[name], default="")
    default_s = next((record.reference_s for record in reversed(ran) if record.host == host and record.reference_s), 0)
    best: dict[object, tuple[float, Candidate]] = {}
    failed: list[Observation] = []
    for record in usable:
        candidate = Candidate(record.template, record.knobs)
        if not (record.latency_s and record.reference_s):
            failed.append(Observation(candidate, None))
        elif record.host == host:
            best[candidate.key] = (record.latency_s / record.reference_s, candidate)
    measured = tuple(sorted(best.values(), key=lambda pair: pair[0]))
    return Known(host, default_s, measured, tuple(failed))

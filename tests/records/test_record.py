from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
import pytest

from felix_mlir.measure import Status
from felix_mlir.records import Record

PLACE = {"target": "cpu", "compiler": "3.13.0", "host": "here"}


def test_the_default_is_a_template_without_knobs():
    record = Record("task", "default", {}, **PLACE, status=Status.OK, latency_s=1.0)
    assert (record.template, record.knobs) == ("default", {})


def test_a_record_is_created_now_in_utc():
    record = Record("task", "a", {}, **PLACE, status=Status.CRASH)
    created = datetime.fromisoformat(record.created)
    assert abs((datetime.now(UTC) - created).total_seconds()) < 60


def test_knobs_are_copied_and_become_plain_integers():
    knobs = {"tile": np.int64(8)}
    record = Record("task", "a", knobs, **PLACE, status=Status.CRASH)
    knobs["tile"] = np.int64(9)
    assert record.knobs == {"tile": 8}
    assert type(record.knobs["tile"]) is int
    assert Record.from_json(record.to_json()) == record


@pytest.mark.parametrize("value", [8.0, "8", None])
def test_a_knob_that_is_no_integer_is_refused(value):
    with pytest.raises(TypeError):
        Record("task", "a", {"tile": value}, **PLACE, status=Status.CRASH)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("field", ["latency_s", "reference_s", "samples"])
def test_a_time_must_be_positive_and_finite(field, seconds):
    times = {"latency_s": 1.0, "reference_s": 1.0, "samples": (1.0,)}
    times[field] = (1.0, seconds) if field == "samples" else seconds
    with pytest.raises(ValueError, match="a time of"):
        Record("task", "a", {}, **PLACE, status=Status.OK, **times)


def test_ok_needs_a_latency():
    with pytest.raises(ValueError, match="latency"):
        Record("task", "a", {}, **PLACE, status=Status.OK)

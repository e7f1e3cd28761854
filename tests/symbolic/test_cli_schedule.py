"""What `felix-mlir schedule` prints for a task, and how it refuses wrong settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from felix_mlir.cli.schedule import list_schedule, schedule_script, tiled_ir
from felix_mlir.cli.settings import read_settings
from felix_mlir.errors import RequestError

ALL = {
    "distribution_d0": 25, "distribution_d1": 48, "cache_d0": 25, "cache_d1": 48, "cache_d2": 36,
    "vector_d0": 5, "vector_d1": 16, "vector_d2": 4,
}  # fmt: skip


@pytest.fixture
def task(tasks_of):
    return tasks_of("matmul").root


def test_script_leaves_open_what_is_not_set(task):
    assert schedule_script(task, {}).count("transform.tune.knob") == len(ALL)
    assert schedule_script(task, {"cache_d2": 36}).count("transform.tune.knob") == len(ALL) - 1
    assert "tune.knob" not in schedule_script(task, ALL)


def test_applied_script_is_symbolic_until_every_knob_is_set(task):
    assert tiled_ir(task, {}).count("felix.knob") == len(ALL)
    some = tiled_ir(task, {"distribution_d0": 25, "distribution_d1": 48})
    assert some.count("felix.knob") == len(ALL) - 2 and "step (25, 48)" in some
    assert "felix.knob" not in tiled_ir(task, ALL)


def test_listing_says_what_may_be_chosen_and_what_holds(task):
    listed = list_schedule(task, {"distribution_d0": 25, "cache_d0": 25})
    assert listed["task"] == task.id and listed["template"] == "DoubleTilingExpert"
    knobs = {knob["name"]: knob for knob in listed["knobs"]}
    assert knobs.keys() == ALL.keys()
    assert knobs["cache_d2"] == {
        "name": "cache_d2", "dimension": 2, "level": "cache_reduction", "extent": 72, "value": None,
        "options": list(task.tunable.templates[0].knobs[-2].options),
    }  # fmt: skip
    assert knobs["cache_d0"]["value"] == 25
    holds = {c["message"].split(" must")[0]: c["holds"] for c in listed["constraints"]}
    assert holds["cache_d0"] is True and holds["cache_d1"] is None


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"nonsense": 1}, "has no knob nonsense; it has cache_d0"),
        ({"cache_d0": 11}, "cache_d0 = 11 is not one of 1, 2, 3"),
        ({"distribution_d0": 25, "cache_d0": 4}, "cache_d0 must divide distribution_d0"),
    ],
)
def test_wrong_settings_are_refused(task, fixed, message):
    for function in (schedule_script, tiled_ir, list_schedule):
        with pytest.raises(RequestError, match=message):
            function(task, fixed)


def test_task_without_a_template_says_why(task):
    with pytest.raises(RequestError, match="has no schedule to choose: it only copies"):
        schedule_script(replace(task, tunable=None, reason="it only copies"), {})


def test_settings_are_read_as_written():
    assert read_settings(["a=4", " b = 16"]) == {"a": 4, "b": 16}
    for wrong in ("a", "a=", "a=x", "a=-1"):
        with pytest.raises(RequestError, match="write it as knob=value"):
            read_settings([wrong])

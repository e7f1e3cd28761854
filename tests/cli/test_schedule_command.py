"""`felix-mlir schedule` through the command line."""

from __future__ import annotations

import json

from ops import matmul
from test_cli import felix, refused


def test_a_task_is_shown_as_script_loops_and_knobs(tmp_path):
    (model := tmp_path / "model.mlir").write_text(matmul(64, 96, 72))
    (task,) = json.loads(felix("tasks", model, "--json").stdout)
    listed = json.loads(felix("schedule", model, "--task", task["id"], "--json").stdout)
    assert listed["task"] == task["id"]
    sizes = [f"{knob['name']}={max(knob['options'])}" for knob in listed["knobs"]]
    assert {"name", "dimension", "level", "options"} <= listed["knobs"][0].keys()
    script = felix("schedule", model, "--task", task["id"]).stdout
    assert script.count("transform.tune.knob") == len(sizes)
    symbolic = felix("schedule", model, "--task", task["id"], "--apply").stdout
    assert "affine.min" in symbolic
    assert "felix.knob" in symbolic
    some = felix("schedule", model, "--task", task["id"], "--set", "distribution_d0=32").stdout
    assert some.count("transform.tune.knob") == len(sizes) - 1
    assert "has no task nonsense" in refused("schedule", model, "--task", "nonsense")
    assert "has no knob" in refused("schedule", model, "--task", task["id"], "--set", "tile=4")
    assert "knob=value" in refused("schedule", model, "--task", task["id"], "--set", "tile")

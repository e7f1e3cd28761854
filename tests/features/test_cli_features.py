"""The functions behind `felix-mlir features`, on the nest of a real task."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from feature_cases import MACHINE

from felix_mlir.cli.features import complete_settings, describe_features, describe_task, show_features
from felix_mlir.errors import RequestError
from felix_mlir.features import MachineLimits
from felix_mlir.symbolic import read_nest, tile_symbolically

LIMITS = MachineLimits(**{name.removeprefix("machine_"): value for name, value in MACHINE.items()})


@pytest.fixture
def matmul(tasks_of):
    task = tasks_of("matmul").root
    template = task.tunable.templates[0]
    return task, template, read_nest(tile_symbolically(template, task.tunable.configured), template)


def test_expressions_without_values(matmul, capsys):
    task, template, nest = matmul
    described = describe_features(task.id, template, nest, LIMITS)
    assert json.loads(json.dumps(described)) == described
    assert described["knobs"] is None
    trips = described["features"]["linalg.matmul/distribution/d0/tiles"]
    assert trips["unit"] == "tiles"
    assert "distribution_d0" in trips["expr"]
    assert trips["exact"] is None
    show_features(described)
    assert "linalg.matmul/distribution/d0/tiles [tiles] = " in capsys.readouterr().out


def test_values_and_gradients(matmul, capsys):
    task, template, nest = matmul
    default = template.values_of(task.tunable.default)
    values = complete_settings(["distribution_d0=16", "cache_d0=16"], template, default)
    described = describe_features(task.id, template, nest, LIMITS, values)
    assert json.loads(json.dumps(described)) == described
    assert described["knobs"] == values
    rows = described["features"]["linalg.matmul/distribution/d0/tiles"]
    assert rows["exact"] == 4
    assert rows["relaxed"] == pytest.approx(4, rel=0.1)
    assert rows["gradient"]["distribution_d0"] < 0
    assert rows["gradient"]["distribution_d1"] == 0
    assert all(c["holds"] == (c["message"] not in template.violations(values)) for c in described["constraints"])
    show_features(described)
    assert "distribution_d0" in capsys.readouterr().out


def test_a_broken_constraint_is_named(matmul, capsys):
    task, template, nest = matmul
    values = complete_settings(
        ["distribution_d1=48", "cache_d1=32"], template, template.values_of(task.tunable.default)
    )
    described = describe_features(task.id, template, nest, LIMITS, values)
    broken = [c for c in described["constraints"] if not c["holds"]]
    assert any("cache_d1 must divide distribution_d1" in c["message"] for c in broken)
    assert all(c["penalty"] > 0 for c in broken)
    show_features(described)
    assert "BROKEN: cache_d1 must divide distribution_d1" in capsys.readouterr().out


@pytest.mark.parametrize("setting", ["cache_d0", "cache_d0=zero", "cache_d0=0", "no_such_knob=4"])
def test_wrong_settings_are_refused(matmul, setting):
    task, template, _ = matmul
    with pytest.raises(RequestError):
        complete_settings([setting], template, template.values_of(task.tunable.default))


def test_settings_without_a_default_must_be_complete(matmul):
    _, template, _ = matmul
    assert complete_settings([], template, None) is None
    with pytest.raises(RequestError, match=r"set .*cache_d1"):
        complete_settings(["cache_d0=8"], template, None)


def test_a_task_is_described_with_the_compilers_choice_where_nothing_is_set(matmul):
    task, template, _ = matmul
    assert describe_task(task, [])["knobs"] is None
    described = describe_task(task, ["cache_d0=16"])
    assert described["knobs"] == {**template.values_of(task.tunable.default), "cache_d0": 16}
    assert described["features"]["linalg.matmul/iterations"]["exact"] == 50 * 96 * 72
    assert described["machine"]["machine_cores"] > 0


def test_a_task_without_a_schedule_says_why(matmul):
    untuned = replace(matmul[0], tunable=None, reason="a copy")
    with pytest.raises(RequestError, match="a copy"):
        describe_task(untuned, [])

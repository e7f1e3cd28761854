"""The table of whole models: a small model through tuning and timing, what is printed, and what may go wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import model_table

from felix_mlir.errors import WorkError
from felix_mlir.measure import MIN_PAIRS


@pytest.fixture(scope="module", autouse=True)
def short_turns():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_table, "TURN_S", 0.005)
        yield


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """The folder of one short run."""
    folder = tmp_path_factory.mktemp("table")
    assert model_table.main(["mlp", "--budget", "10s", "--out", str(folder)]) == 0
    return folder


def test_a_model_is_tuned_and_timed_beside_torch(out):
    document = json.loads((out / "model_table.json").read_text())
    assert document["errors"] == []
    (model,) = document["models"]
    assert model["model"] == "mlp"
    assert model["relative_error"] < 1e-4
    assert {entry["status"] for entry in model["programs"].values()} == {"ok"}
    assert {len(entry["samples_s"]) for entry in model["programs"].values()} == {21}
    for name in ("default", "torch"):
        gain = model[f"{name}_over_tuned"]
        assert 0 < gain["low"] <= gain["ratio"] <= gain["high"]
        assert gain["ratio"] == pytest.approx(model[f"{name}_ms"] / model["tuned_ms"], rel=0.5)


def test_only_what_is_missing_is_tuned_and_a_failure_does_not_lose_the_rest(out, capfd, monkeypatch):
    def no_luck(source: str, budget: str, folder: Path) -> None:
        raise WorkError("no luck")

    monkeypatch.setattr(model_table, "tune", no_luck)
    assert model_table.main(["attention_block", "mlp", "--measured-only", "--out", str(out)]) == 1
    captured = capfd.readouterr()
    assert captured.err.splitlines()[-1] == "error: attention_block: no luck"
    heading, row = captured.out.splitlines()
    assert heading.split()[:3] == ["model", "default", "ms"]
    assert row.split()[0] == "mlp"
    assert len(json.loads((out / "model_table.json").read_text())["models"]) == 1


def test_slow_models_get_fewer_turns(tmp_path):
    def turns(default_ms: float | None) -> int:
        (tmp_path / "report.json").write_text(json.dumps({"default_ms": default_ms, "tuned_ms": default_ms}))
        return model_table.timing_of(tmp_path).repetitions

    assert [turns(ms) for ms in (None, 1.0, 1e4, 1e6)] == [21, 21, 15, MIN_PAIRS]
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(WorkError, match="damaged"):
        model_table.timing_of(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resnet"], "no model is called 'resnet': there are attention_block,"),
        (["mlp", "--budget", "x"], "no duration"),
    ],
)
def test_wrong_requests_end_with_one_line(tmp_path, capsys, arguments, words):
    assert model_table.main([*arguments, "--out", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

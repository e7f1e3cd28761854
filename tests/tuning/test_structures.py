"""Structures in a run: found, used, replayed; what does not work is dropped; what has none is left alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from configured import CPU, compile_checked
from ops import LAYER_NORM, strided_1x1

from felix_mlir.apply import compile_tuned
from felix_mlir.compiler.process import BuildOutcome, BuildStatus
from felix_mlir.options import TuneOptions
from felix_mlir.report import SilentProgress
from felix_mlir.sketches import estimated_s, sketches_of
from felix_mlir.sketches.writer import Writer
from felix_mlir.tuning import model_stage, run, run_tuning, structures


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "variants", lambda structure: (structure,))
    monkeypatch.setattr(run, "_MOST_RIVALS", 0)
    (path := tmp_path / "model.mlir").write_text(strided_1x1(128, 128))
    return path


def tune(model, out, **options):
    return run_tuning(str(model), TuneOptions(out, budget_s=None, trials=0, **options), SilentProgress())


def test_a_strided_convolution_gets_another_structure_which_is_told_and_replayed(model, tmp_path, monkeypatch):
    """The default is scalar code, far slower than any structure with vectors; a second run measures none again."""
    out = tmp_path / "out"
    report = tune(model, out)
    assert report["speedup"] > 2 and report["largest_relative_error"] <= report["tolerance"]
    (op,) = report["structures"]
    assert op["iteration_space"] == [1, 128, 28, 28, 128, 1, 1] and op["count"] == 1
    assert op["sketch"].startswith("gemm")
    timed = {(timing["layout"], timing["sketch"]): timing["ms"] for timing in op["timings"]}
    assert ("layout-kept", op["sketch"]) in timed or ("channels-last", op["sketch"]) in timed
    assert "__transform_main" in (out / "schedules.mlir").read_text().split("// -----")[0]
    assert report == json.loads((out / "report.json").read_text())

    def refuse(*_):
        raise AssertionError("it was timed before")

    monkeypatch.setattr(structures.StructureSearch, "_time", refuse)
    again = run_tuning(str(model), TuneOptions(out, budget_s=None, trials=1), SilentProgress())
    assert [op["sketch"] for op in again["structures"]] == [op["sketch"]]
    applied = compile_tuned(str(model), "cpu", out, tmp_path / "again.vmfb")
    assert not applied.missing
    assert (tmp_path / "again.vmfb").read_bytes() == (out / "tuned.vmfb").read_bytes()


def test_a_sketch_that_does_not_compile_or_computes_something_else_is_dropped(model, tmp_path, monkeypatch):
    def faulty(root, vector_bytes):
        found = sketches_of(root, vector_bytes)
        for name, number in (("broken", 4.25), ("wrong", 1.0)):
            writer = Writer(root.parameters)
            result = writer.op(f"arith.constant dense<{number}> : {root.output}", root.output)
            found.append(replace(found[0], name=name, writer=writer, result=result))
        return found

    def promising(root, sketches, machine):
        """Constants cost nothing: told so, everything else would not be worth measuring."""
        as_it_is, seconds = estimated_s(root, sketches, machine)
        least = min(seconds[sketch.name] for sketch in sketches_of(root, 32))
        return as_it_is, {**seconds, "broken": least, "wrong": least}

    build = model_stage.ModelStage.build

    def refusing(self, alternative):
        if alternative.rewrites is not None and "4.25" in alternative.rewrites.script:
            stderr = f'loc("felix_{alternative.rewrites.roots[0]}":1:1): error: no'
            return None, BuildOutcome(BuildStatus.COMPILE_ERROR, "no", stderr, ("iree-compile",), 0.1)
        return build(self, alternative)

    monkeypatch.setattr(model_stage.ModelStage, "build", refusing)
    monkeypatch.setattr(structures, "sketches_of", faulty)
    monkeypatch.setattr(structures, "estimated_s", promising)
    monkeypatch.setattr(structures, "_MOST_SKETCHES", 9)
    report = tune(model, tmp_path / "out")
    assert report["speedup"] > 2 and report["largest_relative_error"] <= report["tolerance"]
    (op,) = report["structures"]
    assert op["sketch"] not in ("broken", "wrong")
    assert any("not used" in note for note in report["notes"])


def test_a_model_with_nothing_to_rewrite_is_untouched_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "variants", lambda structure: (structure,))
    (source := tmp_path / "model.mlir").write_text(LAYER_NORM)
    report = run_tuning(str(source), TuneOptions(tmp_path / "out", budget_s=None, trials=0), SilentProgress())
    assert report["structures"] == [] and report["alternative"] == "default"
    plain = tmp_path / "plain.vmfb"
    compile_checked(str(source), *CPU.compile_flags, "-o", str(plain))
    default = (tmp_path / "out" / "default.vmfb").read_bytes()
    assert (tmp_path / "out" / "tuned.vmfb").read_bytes() == default == plain.read_bytes()

"""The device script end to end, on the processor: a payload is made, and run as it would be where the GPU is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "device"))
from cases import CASES, Case
from make_payload import REPEATS, make_payload
from run_on_gpu import OPERATIONS

from felix_mlir.errors import RequestError
from felix_mlir.report import SilentProgress

SMALL = (Case("matmul_f32", "matmul", ((24, 16), (16, 32)), "float32", 1e-5),)


@pytest.fixture(scope="module")
def payload(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("device") / "payload"
    (wheel := folder.parent / "something-1.whl").write_bytes(b"wheel")
    size = make_payload(folder, "cpu", SMALL, 2, ["matmul_f32"], 3, [wheel], SilentProgress())
    assert size == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return folder


def run(folder: Path, output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "run_on_gpu.py"), str(folder), "-o", str(output), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_payload_is_checked_and_timed_in_one_go(payload, tmp_path):
    done = run(payload, tmp_path / "results.json", "--time-limit", "60")
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    (case,) = results["cases"]
    assert case["is_correct"]
    assert max(case["errors"].values()) < 1e-5
    assert {"default", "tuned", "torch"} == set(case["us"])
    assert all(us > 0 for us in case["us"].values())
    assert "Triton is not timed" in case["skipped"]
    (bundle,) = results["bundles"]
    header, *candidates = bundle["results"]
    assert header["device"] == "local-task"
    assert len(candidates) == 3
    # Whatever else the machine does meanwhile.
    assert {candidate["status"] for candidate in candidates} <= {"ok", "unstable"}
    assert results["seconds"] < 60


def test_a_wrong_module_and_a_missing_one_are_found_out(payload, tmp_path):
    shutil.copytree(payload, tmp_path / "payload")
    about = json.loads((payload / "payload.json").read_text())
    (case,) = about["cases"]
    about["cases"] = [{**case, "tolerance": 0.0}, {**case, "name": "other", "tuned": "modules/none.vmfb"}]
    about["bundles"] = []
    (tmp_path / "payload" / "payload.json").write_text(json.dumps(about))
    done = run(tmp_path / "payload", tmp_path / "results.json")
    assert done.returncode == 1
    first, second = json.loads((tmp_path / "results.json").read_text())["cases"]
    assert not first["is_correct"]
    assert "NOT correct" in done.stderr
    assert "tuned" in second["failures"]
    assert second["us"]["default"] > 0


def test_what_cannot_be_run_is_refused_in_one_line(payload, tmp_path):
    done = run(tmp_path, tmp_path / "results.json")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    with pytest.raises(RequestError, match="is there"):
        make_payload(payload, "cpu", SMALL, 1, [], 1, [], SilentProgress())


def test_every_case_is_an_operation_of_torch_with_a_size_that_fits():
    import torch

    assert REPEATS > 1
    for case in CASES:
        inputs = [torch.empty(shape, dtype=getattr(torch, case.dtype), device="meta") for shape in case.shapes]
        assert OPERATIONS[case.op](*inputs).numel() > 0

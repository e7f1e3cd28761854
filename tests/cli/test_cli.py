"""The command line: what it prints, what it exits with, and one line for everything that is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ops import LAYER_NORM, matmul

from felix_mlir.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples" / "models"


def felix(*arguments: object, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "felix_mlir.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def the_one_line(status: object, stdout: str, stderr: str) -> str:
    """Return the line a wrong request was answered with."""
    assert status == 2, stderr
    assert "Traceback" not in stderr
    assert stdout == ""
    lines = [line for line in stderr.splitlines() if line.startswith("felix-mlir: ")]
    assert len(lines) == 1, stderr
    return lines[0]


def refused(*arguments: object) -> str:
    """Run a request that is wrong; returns the one line it is answered with."""
    done = felix(*arguments)
    return the_one_line(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def refused_here(monkeypatch, capfd):
    """As `refused`, but in this process, which has imported everything already."""

    def call(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["felix-mlir", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        return the_one_line(exit_.value.code, *capfd.readouterr())

    return call


@pytest.fixture
def model(tmp_path) -> Path:
    (path := tmp_path / "model.mlir").write_text(LAYER_NORM)
    return path


def test_wrong_requests_are_answered_in_one_line_that_says_what_to_do(tmp_path, model, refused_here):
    out = tmp_path / "out"
    (garbage := tmp_path / "garbage.mlir").write_text("this is no MLIR at all")
    (raises := tmp_path / "raises.py").write_text("def build():\n    raise ValueError('no weights')\n")
    (wrong := tmp_path / "wrong.py").write_text("def build():\n    return 42\n")
    cases = {
        "not there.mlir": (tmp_path / "not there.mlir",),
        str(tmp_path): (tmp_path,),
        "rejects": (garbage,),
        "no weights": (f"{raises}:build",),
        "nn.Module": (f"{wrong}:build",),
        "unknown target 'tpu'": (model, "--target", "tpu"),
        "'soon' is no duration": (model, "--budget", "soon"),
        "leaves no time": (model, "--budget", "0s"),
        "unknown search 'magic'": (model, "--search", "magic"),
    }
    for expected, arguments in cases.items():
        assert expected in refused_here("tune", *arguments, "--out", out)
    (blocked := tmp_path / "file").write_text("")
    assert "cannot use" in refused("tune", model, "--out", blocked / "out")
    assert "no tuning result" in refused_here("compile", model, "--tuned", tmp_path / "none", "-o", tmp_path / "x.vmfb")
    assert "no finished result" in refused_here("bench", tmp_path)
    assert "no compiled IREE module" in refused_here("bench", model, model)


def test_an_unknown_option_exits_2():
    done = felix("tune", "--no-such-option")
    assert done.returncode == 2
    assert "no-such-option" in done.stderr


def test_tasks_lists_every_dispatch_with_its_share(tmp_path):
    done = felix("tasks", f"{EXAMPLES / 'mlp.py'}:build", "--json")
    assert done.returncode == 0, done.stderr
    tasks = json.loads(done.stdout)
    assert all(task["id"] and (task["templates"] or task["reason"]) for task in tasks)
    assert sum(task["share"] for task in tasks) == pytest.approx(1.0)
    assert {"matmul", "reduction"} <= {task["kind"] for task in tasks}
    table = felix("tasks", f"{EXAMPLES / 'mlp.py'}:build").stdout
    assert all(task["id"] in table for task in tasks)


def test_tune_compile_and_bench_fit_together(tmp_path, model):
    out, module = tmp_path / "tuned", tmp_path / "again.vmfb"
    tuned = felix("tune", model, "--trials", 8, "--out", out, "--json")
    assert tuned.returncode == 0, tuned.stderr
    report = json.loads(tuned.stdout)
    assert report == json.loads((out / "report.json").read_text())
    assert "tried, best" in tuned.stderr

    compiled = felix("compile", model, "--tuned", out, "-o", module)
    assert compiled.returncode == 0, compiled.stderr
    assert module.read_bytes() == (out / "tuned.vmfb").read_bytes()

    bench = felix("bench", out, "--json")
    assert bench.returncode == 0, bench.stderr
    result = json.loads(bench.stdout)
    assert result["verdict"] in ("faster", "slower", "same")
    assert result["interval"][0] <= result["speedup"] <= result["interval"][1]
    text = felix("bench", out / "default.vmfb", module).stdout
    assert "95 % interval" in text

    (other := tmp_path / "other.mlir").write_text(matmul(8, 16, 32))
    if json.loads((out / "manifest.json").read_text())["tasks"]:
        assert "another model" in refused("compile", other, "--tuned", out, "-o", tmp_path / "y.vmfb")


def test_help_answers_without_the_compiler():
    code = "import sys; sys.argv = ['felix-mlir', '--help']\nfrom felix_mlir.cli import main\n"
    check = "try:\n    main()\nexcept SystemExit:\n    pass\nprint('torch' in sys.modules, 'iree' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code + check], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "False False"
    assert "tune" in done.stdout

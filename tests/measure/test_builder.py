from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from felix_mlir.compiler.process import BuildStatus, tool_path
from felix_mlir.measure import Builder, BuildJob
from felix_mlir.target import parse_target

PATIENCE_S = 60.0

# Called as `compiler WHAT INPUT [flags] -o OUTPUT`; leaves a line in INPUT.log each time.
FAKE_COMPILER = """
import os, signal, sys, time
from pathlib import Path
what, source, *_, output = sys.argv[1:]
with open(source + ".log", "a") as log:
    print(os.getpid(), file=log, flush=True)
if what == "copy":
    Path(output).write_bytes(Path(source).read_bytes())
elif what == "meet":
    # Ends only once as many compilers as the input says have started.
    log = Path(source).parent / "met"
    with open(log, "a") as file:
        print("here", file=file, flush=True)
    while len(log.read_text().splitlines()) < int(Path(source).read_text()):
        time.sleep(0.01)
    Path(output).write_text("met")
elif what == "error":
    Path(output).write_text("half of it")
    sys.exit("input.mlir:1:1: error: unsupported")
elif what == "crash":
    Path(output).write_text("half of it")
    os.kill(os.getpid(), signal.SIGSEGV)
elif what == "hang":
    Path(output).write_text("half of it")
    time.sleep(600)
elif what == "nothing":
    pass
"""
UNTIL_CTRL_C = """
import sys
from pathlib import Path
from felix_mlir.measure import Builder, BuildJob
cache, *command = sys.argv[1:]
jobs = [BuildJob((*command, f"{cache}.{i}"), Path(f"{cache}.{i}.out")) for i in range(4)]
Builder(2, 600, Path(cache)).build(jobs)
"""


class Bench:
    """A fake compiler, a builder with two workers, and files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.compiler = folder / "fake_compiler.py"
        self.compiler.write_text(FAKE_COMPILER)
        self.cache = folder / "cache"
        self.builder = Builder(2, PATIENCE_S, self.cache)

    def source(self, name: str, content: str = "content") -> Path:
        path = self.folder / name
        path.write_text(content)
        return path

    def job(self, what: str, source: Path, *flags: str) -> BuildJob:
        command = (sys.executable, str(self.compiler), what, str(source), *flags)
        return BuildJob(command, source.with_suffix(".out"))

    def pids(self, source: Path) -> list[int]:
        log = Path(f"{source}.log")
        return [int(pid) for pid in log.read_text().split()] if log.exists() else []

    def leftovers(self) -> list[str]:
        return [path.name for path in self.folder.rglob("*.tmp")]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_outcomes_come_in_the_order_of_the_jobs(bench):
    sources = [bench.source(f"{i}.mlir", str(i)) for i in range(7)]
    whats = ["copy", "error", "copy", "crash", "copy", "nothing", "copy"]
    jobs = [bench.job(what, source) for what, source in zip(whats, sources, strict=True)]
    outcomes = bench.builder.build(jobs)
    ok, error, crash = BuildStatus.OK, BuildStatus.COMPILE_ERROR, BuildStatus.CRASH
    assert [outcome.status for outcome in outcomes] == [ok, error, ok, crash, ok, error, ok]
    assert [job.output.read_text() for job in jobs if job.output.exists()] == ["0", "2", "4", "6"]
    assert outcomes[1].message == "input.mlir:1:1: error: unsupported"
    assert outcomes[5].message == "the compiler reported success and wrote nothing"
    for job, outcome in zip(jobs, outcomes, strict=True):
        assert outcome.command == (*job.command, "-o", str(job.output))
    assert bench.leftovers() == []


def test_nothing_to_build_is_fine(bench):
    assert bench.builder.build([]) == []


def test_as_many_children_run_at_once_as_there_are_workers(bench):
    jobs = [bench.job("meet", bench.source(f"{i}.mlir", "2"), f"--{i}") for i in range(2)]
    assert all(outcome.ok for outcome in bench.builder.build(jobs))


@pytest.mark.parametrize("what", ["error", "crash", "nothing", "hang"])
def test_a_failure_leaves_what_was_there_and_is_not_remembered(bench, what):
    bench.builder = Builder(2, 1.0, bench.cache)
    source = bench.source("a.mlir")
    job = bench.job(what, source)
    job.output.write_text("from before")
    assert not bench.builder.build([job])[0].ok
    assert not bench.builder.build([job])[0].ok
    assert job.output.read_text() == "from before"
    assert len(bench.pids(source)) == 2
    assert (list(bench.cache.iterdir()), bench.leftovers()) == ([], [])


def test_a_hang_is_ended(bench, is_gone):
    bench.builder = Builder(2, 1.0, bench.cache)
    source = bench.source("a.mlir")
    (outcome,) = bench.builder.build([bench.job("hang", source)])
    assert outcome.status is BuildStatus.COMPILE_TIMEOUT
    assert all(is_gone(pid) for pid in bench.pids(source))


def test_the_same_content_is_compiled_once(bench):
    first, second = bench.source("a.mlir"), bench.source("b.mlir")
    (compiled,) = bench.builder.build([bench.job("copy", first)])
    again = Builder(2, PATIENCE_S, bench.cache).build([bench.job("copy", first), bench.job("copy", second)])
    assert [outcome.ok for outcome in (compiled, *again)] == [True] * 3
    assert [outcome.seconds for outcome in again] == [0.0, 0.0]
    assert (len(bench.pids(first)), len(bench.pids(second))) == (1, 0)
    assert second.with_suffix(".out").read_text() == "content"


def test_other_content_flags_or_files_behind_flags_are_compiled_again(bench):
    source, library = bench.source("a.mlir"), bench.source("library.mlir", "one")
    flags = ("--opt=3", f"--library={library}", f"--parameters=model={library}")

    def compilations() -> int:
        (outcome,) = bench.builder.build([bench.job("copy", source, *flags)])
        assert outcome.ok
        return len(bench.pids(source))

    assert [compilations(), compilations()] == [1, 1]
    library.write_text("two")
    assert [compilations(), compilations()] == [2, 2]
    source.write_text("other content")
    assert [compilations(), compilations()] == [3, 3]
    flags = ("--opt=2", *flags[1:])
    assert [compilations(), compilations()] == [4, 4]
    flags = (*flags, "--pipeline=" + "a" * 5000)
    assert [compilations(), compilations()] == [5, 5]


def test_another_compiler_version_compiles_again(bench, monkeypatch):
    source = bench.source("a.mlir")
    bench.builder.build([bench.job("copy", source)])
    monkeypatch.setattr("felix_mlir.measure.builder.version", lambda name: "4.0.0")
    Builder(2, PATIENCE_S, bench.cache).build([bench.job("copy", source)])
    assert len(bench.pids(source)) == 2


def test_a_changed_output_does_not_change_the_cache(bench):
    job = bench.job("copy", bench.source("a.mlir"))
    bench.builder.build([job])
    job.output.write_text("spoiled")
    bench.builder.build([job])
    assert job.output.read_text() == "content"


def test_a_compiler_that_is_not_there_ends_the_others(bench, is_gone):
    source = bench.source("a.mlir")
    missing = BuildJob((str(bench.folder / "missing"),), bench.folder / "out")
    with pytest.raises(FileNotFoundError):
        bench.builder.build([bench.job("hang", source), missing])
    assert all(is_gone(pid) for pid in bench.pids(source))
    assert bench.leftovers() == []


def test_ctrl_c_ends_every_child(bench, start_python, is_gone):
    command = (sys.executable, str(bench.compiler), "hang")
    process = start_python(UNTIL_CTRL_C, bench.cache, *command)
    logs = [Path(f"{bench.cache}.{i}.log") for i in range(4)]
    while sum(log.exists() and log.read_text().endswith("\n") for log in logs) < 2:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert stderr.splitlines()[-1] == "KeyboardInterrupt"
    started = [int(log.read_text()) for log in logs if log.exists()]
    assert len(started) == 2
    assert all(is_gone(pid) for pid in started)
    assert bench.leftovers() == []


def test_a_real_module_is_built_and_then_found(tmp_path):
    source = tmp_path / "add.mlir"
    source.write_text("""
        func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
          %sum = arith.addf %a, %a : tensor<4xf32>
          return %sum : tensor<4xf32>
        }
    """)
    command = (tool_path("iree-compile"), *parse_target("cpu").compile_flags, str(source))
    jobs = [BuildJob(command, tmp_path / name) for name in ("a.vmfb", "b.vmfb")]
    builder = Builder(os.cpu_count() or 1, PATIENCE_S, tmp_path / "cache")
    (first,) = builder.build(jobs[:1])
    (second,) = builder.build(jobs[1:])
    assert first.ok and first.seconds > 0
    assert second.ok and second.seconds == 0
    assert jobs[0].output.read_bytes() == jobs[1].output.read_bytes()

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from felix_mlir.errors import WorkError
from felix_mlir.measure import Runner, Status, Timing, worker_process

PATIENCE_S = 60.0

WHILE_IT_HANGS = """
import sys
from pathlib import Path
from felix_mlir.measure import Program, Runner, Timing
file, *command = sys.argv[1:]
with Runner("local-task", command) as runner:
    print("ready", flush=True)
    runner.measure(Program(Path(file), Path(file), function="hang"), Timing(0.1, 3), 600)
"""


@pytest.fixture
def runner(fake):
    with Runner("local-task", fake.command) as runner:
        yield runner


def measure(runner, fake, what, timeout_s=PATIENCE_S):
    return runner.measure(fake.program(what), Timing(0.1, 3), timeout_s)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("exit", "the worker ended with exit status 3"),
        ("segfault", "the worker was killed by SIGSEGV"),
        ("garbage", "the worker answered 'Hello from a library!', which is no answer"),
        ("list", "the worker answered '[1, 2, 3]', which is no answer"),
        ("wrong id", "the worker answered job 1, not 2"),
        ("no results", "the worker's answer cannot be read"),
        ("too few", "the worker's answer cannot be read"),
        ("unknown status", "the worker's answer cannot be read"),
        ("cut off", "the worker was killed by SIGKILL"),
    ],
)
def test_a_worker_that_fails_is_a_crash_and_the_next_program_is_measured(runner, fake, is_gone, what, message):
    assert measure(runner, fake, "ok").status is Status.OK
    failed = measure(runner, fake, what)
    assert (failed.status, failed.samples, failed.latency_s) == (Status.CRASH, (), None)
    assert failed.message.startswith(message)
    assert what in failed.command

    after = measure(runner, fake, "ok")
    assert (after.status, after.samples, after.message) == (Status.OK, (1.0, 1.1, 1.0), "")
    (first, _), (second, _), (third, _) = fake.entries()
    assert first == second != third
    assert is_gone(first)


def test_a_worker_that_closes_its_output_is_a_crash(runner, fake, is_gone, monkeypatch):
    monkeypatch.setattr(worker_process, "EXIT_TIMEOUT_S", 0.1)
    failed = measure(runner, fake, "close")
    assert (failed.status, failed.message) == (Status.CRASH, "the worker closed its output")
    assert is_gone(fake.entries()[0][0])


def test_the_end_of_stderr_is_kept(runner, fake):
    assert measure(runner, fake, "exit").stderr == "the reason is here\n"
    assert measure(runner, fake, "segfault").stderr == ""


def test_a_hang_ends_with_its_whole_process_group(runner, fake, is_gone):
    failed = measure(runner, fake, "hang", timeout_s=2.5)
    assert (failed.status, failed.message) == (Status.RUN_TIMEOUT, "no answer after 2.5 s")
    assert [what for _, what in fake.entries()] == ["hang", "child"]
    assert all(is_gone(pid) for pid, _ in fake.entries())
    assert measure(runner, fake, "ok").status is Status.OK


def test_an_answer_that_takes_long_but_not_too_long_counts(runner, fake):
    assert measure(runner, fake, "slow").status is Status.OK


def test_a_worker_that_died_while_idle_blames_nobody(runner, fake, is_gone):
    measure(runner, fake, "ok")
    pid = fake.entries()[0][0]
    os.kill(pid, signal.SIGKILL)
    assert is_gone(pid)
    assert measure(runner, fake, "ok").status is Status.OK


def test_many_crashes_in_a_row_leave_nothing_behind(runner, fake, is_gone):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(8):
        assert measure(runner, fake, "segfault").status is Status.CRASH
    assert measure(runner, fake, "ok").status is Status.OK
    assert all(is_gone(pid) for pid, what in fake.entries() if what == "segfault")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 3


def test_unstable_samples_are_taken_once_more(runner, fake):
    failed = measure(runner, fake, "unstable")
    assert (failed.status, failed.samples) == (Status.UNSTABLE, (1.0, 2.0, 3.0))
    assert "50%" in failed.message
    assert len(fake.entries()) == 2


def test_samples_that_were_unstable_once_are_fine(runner, fake):
    measured = measure(runner, fake, "unstable once")
    assert (measured.status, measured.samples) == (Status.OK, (2.0, 2.0, 2.0))


@pytest.mark.parametrize(("what", "status"), [("segfault", Status.CRASH), ("hang", Status.RUN_TIMEOUT)])
def test_interleaved_programs_fail_together(runner, fake, what, status):
    programs = [fake.program(what), fake.program("ok")]
    failed = runner.measure_interleaved(programs, Timing(0.1, 3), 1.5)
    assert [one.status for one in failed] == [status, status]


def test_interleaved_samples_are_never_unstable(runner, fake):
    (one,) = runner.measure_interleaved([fake.program("unstable")], Timing(0.1, 3), PATIENCE_S)
    assert one.status is Status.OK


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import sys; sys.exit('Traceback\\nno such library')", "does not start: .* exit status 1: no such library"),
        ("print('{}')", "cannot open its device"),
        (
            """print('{"ready": false, "message": "no such device"}')""",
            "cannot open its device: no such device",
        ),
        ("import time; time.sleep(600)", "does not start: no answer after 1 s"),
    ],
)
def test_a_worker_that_does_not_start_is_no_fault_of_the_program(fake, monkeypatch, script, message):
    monkeypatch.setattr(worker_process, "START_TIMEOUT_S", 1)
    with (
        Runner("local-task", [sys.executable, "-c", script]) as runner,
        pytest.raises(WorkError, match=message),
    ):
        measure(runner, fake, "ok")


def test_the_end_of_the_context_ends_the_worker(fake, is_gone):
    with Runner("local-task", fake.command) as runner:
        measure(runner, fake, "ok")
    assert is_gone(fake.entries()[0][0])


def test_ctrl_c_ends_the_worker_at_once(fake, start_python, is_gone):
    process = start_python(WHILE_IT_HANGS, fake.program("hang").vmfb, *fake.command)
    assert process.stdout.readline() == "ready\n"
    while not fake.log.exists() or len(fake.entries()) < 2:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert all(is_gone(pid) for pid, _ in fake.entries())


def test_huge_pages_are_asked_for_beside_what_was_set(monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert worker_process.worker_tunables() == "glibc.malloc.hugetlb=1"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0")
    assert worker_process.worker_tunables() == "glibc.malloc.check=0:glibc.malloc.hugetlb=1"

"""Compiler children: every way they end has its status, and none outlives its time."""

from __future__ import annotations

import os
import time

import pytest

from felix_mlir.compiler.process import BuildStatus, run_compiler, tool_path
from felix_mlir.errors import WorkError


def shell(script: str, timeout_s: float = 20.0):
    return run_compiler(["sh", "-c", script], timeout_s)


def test_success_has_no_message():
    outcome = shell("exit 0")
    assert outcome.ok
    assert outcome.message == ""


def test_an_error_keeps_the_compilers_own_first_error_line():
    outcome = shell("echo 'x.mlir:1:2: warning: w' >&2; echo 'x.mlir:3:4: error: bad tile' >&2; echo more >&2; exit 1")
    assert outcome.status is BuildStatus.COMPILE_ERROR
    assert outcome.message == "x.mlir:3:4: error: bad tile"
    assert "more" in outcome.stderr


@pytest.mark.parametrize("script", ["kill -SEGV $$", "exit 245"])
def test_a_crash_is_told_from_an_error(script):
    assert shell(script).status is BuildStatus.CRASH


def test_a_silent_failure_still_says_something():
    assert shell("exit 3").message == "exit status 3"


def test_a_hang_is_ended_with_all_its_children(tmp_path):
    pid_file = tmp_path / "pid"
    outcome = shell(f"sleep 1000 & echo $! > {pid_file}; wait", timeout_s=0.5)
    assert outcome.status is BuildStatus.COMPILE_TIMEOUT
    assert "0.5 s" in outcome.message
    grandchild = int(pid_file.read_text())
    for _ in range(100):
        try:
            os.kill(grandchild, 0)
        except ProcessLookupError:
            return
        if "Z" in open(f"/proc/{grandchild}/stat").read().split(")")[1].split()[0]:  # noqa: PTH123, SIM115
            return
        time.sleep(0.05)
    raise AssertionError("the grandchild survived")


def test_a_missing_tool_is_an_error_that_says_what_to_install():
    with pytest.raises(WorkError, match="pip install iree-base-compiler"):
        tool_path("iree-no-such-tool")

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import felix_mlir.errors
from felix_mlir.records import Store

REPOSITORY = Path(felix_mlir.errors.__file__).parents[1]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.db"


@pytest.fixture
def store(path):
    with Store(path) as store:
        yield store


@pytest.fixture
def start_python():
    """Start a script in another interpreter that can import felix_mlir; ended with the test."""
    started = []

    def start(script: str, *arguments: object) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        with process:  # Waits for it and closes its pipes.
            pass

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from felix_mlir.measure import load_arrays, save_arrays, worker
from felix_mlir.measure.worker import WrongResultError, check_outputs

SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, max_side=4)
FLOATS = arrays.arrays(np.float32, SHAPES, elements=st.floats(-1000, 1000, width=32))

# The worker with another way to run a job: what a module could do to its process.
WITH_RUN_JOB = """
import importlib.util, os, sys, time
spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
def run_job(device, job):
    {body}
worker.run_job = run_job
sys.argv = ["worker", "--device", "local-task"]
worker.main()
"""
PARENT = """
import subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
process.stdout.readline()
process.stdin.write(b'{"id": 1}\\n')
process.stdin.flush()
process.stdout.readline()
print(process.pid, flush=True)
process.wait()
"""


def refusal(actual, expected, tolerance=0.0):
    with pytest.raises(WrongResultError) as caught:
        check_outputs(actual, expected, tolerance)
    return caught.value


@given(FLOATS)
def test_equal_outputs_have_no_error(array):
    assert check_outputs([array], [array.copy()], 0.0) == 0.0


@given(FLOATS, st.floats(0.001, 0.5), st.integers(-20, 20))
def test_the_error_is_relative_to_the_largest_value_whatever_the_scale(array, part, exponent):
    expected = array.astype(np.float64) * 2.0**exponent
    largest = np.abs(expected).max()
    actual = expected + part * largest
    if largest == 0:
        assert check_outputs([actual], [expected], 0.0) == 0.0
    else:
        assert check_outputs([actual], [expected], 0.6) == pytest.approx(part)
        assert refusal([actual], [expected], part / 2).error == pytest.approx(part)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_must_be_where_they_are_expected(value):
    plain, odd = np.array([1.0, 2.0]), np.array([1.0, value])
    assert check_outputs([odd], [odd.copy()], 0.0) == 0.0
    assert refusal([odd], [plain], 1e9).error == math.inf
    assert refusal([plain], [odd], 1e9).error == math.inf
    assert refusal([odd], [-odd if math.isinf(value) else odd[::-1]], 1e9).error == math.inf


def test_anything_where_zero_is_expected_is_wrong():
    assert refusal([np.array([1e-30])], [np.zeros(1)], 1e9).error == math.inf


def test_half_precision_does_not_overflow_in_the_comparison():
    large = np.array([60000.0, -60000.0], np.float16)
    assert check_outputs([large], [-large], 2.0) == 2.0


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.bool_])
def test_integers_and_booleans_must_be_equal(dtype):
    expected = np.array([0, 1, 1], dtype)
    assert check_outputs([expected], [expected.copy()], 0.0) == 0.0
    problem = refusal([np.array([1, 1, 1], dtype)], [expected], 1e9)
    assert (str(problem), problem.error) == ("output 0: 1 of 3 elements differ", None)


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        ([], "0 outputs, expected 1"),
        ([np.zeros(2, np.float32)] * 2, "2 outputs, expected 1"),
        ([np.zeros((2, 1), np.float32)], r"output 0 is float32\[2, 1\], expected float32\[2\]"),
        ([np.zeros(2, np.float64)], r"output 0 is float64\[2\], expected float32\[2\]"),
    ],
)
def test_number_shapes_and_types_of_outputs_must_match(actual, message):
    with pytest.raises(WrongResultError, match=message):
        check_outputs(actual, [np.zeros(2, np.float32)], 1e9)


@given(st.lists(arrays.arrays(arrays.scalar_dtypes(), SHAPES), max_size=12))
def test_arrays_survive_the_file(tmp_path_factory, values):
    path = tmp_path_factory.getbasetemp() / "arrays.npz"
    save_arrays(path, "arg", values)
    loaded = load_arrays(path, "arg")
    assert len(loaded) == len(values)
    for one, other in zip(loaded, values, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert [one.name for one in path.parent.glob("*arrays.npz*")] == ["arrays.npz"]


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_types_that_numpy_lacks_survive_the_file(tmp_path, name):
    value = np.array([[0.5, 1.5, -2.0]]).astype(name)
    save_arrays(tmp_path / "arrays.npz", "out", [value])
    (loaded,) = load_arrays(tmp_path / "arrays.npz", "out")
    assert (loaded.dtype.name, loaded.tolist()) == (name, value.tolist())


def test_a_missing_array_is_reported(tmp_path):
    np.savez(tmp_path / "arrays.npz", arg0=np.zeros(1), arg2=np.zeros(1))
    with pytest.raises(ValueError, match=r"arg\[0, 2\], not arg0\.\.arg1"):
        load_arrays(tmp_path / "arrays.npz", "arg")


def test_the_worker_imports_nothing_heavy():
    script = f"import runpy, sys; runpy.run_path({worker.__file__!r}); print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    heavy = {"felix_mlir", "torch", "torch_mlir", "iree.compiler", "sympy", "rich", "typer"}
    assert heavy.isdisjoint(loaded.stdout.splitlines())


def test_what_a_library_prints_stays_out_of_the_protocol():
    body = "print('python'); os.write(1, b'native\\n'); return []"
    command = [sys.executable, "-c", WITH_RUN_JOB.format(body=body), worker.__file__]
    done = subprocess.run(command, input='{"id": 7}\n', capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"ready": True},
        {"id": 7, "results": []},
    ]
    assert "native" in done.stderr


def may_change_policy() -> bool:
    """Whether this is a Linux that lets an ordinary process give its threads the batch policy, and back."""
    try:
        if os.sched_getscheduler(0) != os.SCHED_OTHER:
            return False
        for policy in (os.SCHED_BATCH, os.SCHED_OTHER):
            os.sched_setscheduler(0, policy, os.sched_param(0))
    except (AttributeError, OSError):
        return False
    return True


@pytest.mark.skipif(not may_change_policy(), reason="scheduling policies cannot be set here")
def test_only_the_thread_that_waits_gives_way_to_the_threads_that_work():
    threads = "[int(name) for name in os.listdir('/proc/self/task')]"
    body = f"return [os.getpid(), [(id_, os.sched_getscheduler(id_)) for id_ in {threads}]]"
    command = [sys.executable, "-P", "-c", WITH_RUN_JOB.format(body=body), worker.__file__]
    done = subprocess.run(command, input='{"id": 1}\n', capture_output=True, text=True, timeout=60, check=True)
    waiting, policies = json.loads(done.stdout.splitlines()[1])["results"]
    assert {id_: policy == os.SCHED_BATCH for id_, policy in policies} == {id_: id_ == waiting for id_, _ in policies}
    assert len(policies) > 2


def test_a_worker_whose_parent_was_killed_ends_even_if_it_hangs(start_python, is_gone):
    body = "os.write(answers, b'hanging\\n'); time.sleep(600)"
    hanging = WITH_RUN_JOB.replace("import importlib", "answers = __import__('os').dup(1)\nimport importlib")
    parent = start_python(PARENT, sys.executable, "-c", hanging.format(body=body), worker.__file__)
    pid = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    assert is_gone(pid)

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from felix_mlir.errors import WorkError
from felix_mlir.measure import Program, Runner, Status, Timing, load_arrays, save_arrays

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def runner():
    with Runner("local-task") as runner:
        yield runner


@pytest.fixture
def program(modules):
    return Program(modules.matmul, modules.inputs, expected=modules.expected, tolerance=1e-5)


def test_a_right_program_is_timed(runner, program, timing, patient):
    measured = runner.measure(program, timing, PATIENCE_S)
    assert (measured.status, measured.message, measured.cut_off) == (Status.OK, "", False)
    assert len(measured.samples) == timing.repetitions
    assert min(measured.samples) <= measured.latency_s <= max(measured.samples)
    assert 0 <= measured.error <= program.tolerance


def test_two_programs_that_differ_are_told_apart(runner, program, modules, timing):
    failed = runner.measure(replace(program, vmfb=modules.matmul_plus_one), timing, PATIENCE_S)
    assert (failed.status, failed.samples) == (Status.WRONG_RESULT, ())
    assert failed.error == pytest.approx(1 / np.abs(modules.a @ modules.b).max(), rel=1e-3)
    assert failed.message.startswith("output 0: relative error")


def test_the_outputs_of_one_program_are_the_expectation_of_another(runner, program, modules, timing, patient, tmp_path):
    outputs = tmp_path / "outputs.npz"
    plain = replace(program, expected=None)
    assert runner.measure(plain, timing, PATIENCE_S, save_outputs=outputs).error is None
    np.testing.assert_allclose(load_arrays(outputs, "out")[0], modules.a @ modules.b, rtol=1e-5)

    exact = replace(program, expected=outputs, tolerance=0.0)
    assert runner.measure(exact, timing, PATIENCE_S).error == 0.0
    other = replace(exact, vmfb=modules.matmul_plus_one)
    assert runner.measure(other, timing, PATIENCE_S).status is Status.WRONG_RESULT


def test_weights_outside_the_module_are_found(runner, modules, timing, patient, tmp_path):
    inputs, expected = tmp_path / "inputs.npz", tmp_path / "expected.npz"
    save_arrays(inputs, "arg", [np.ones(4, np.float32)])
    save_arrays(expected, "out", [np.arange(1, 5, dtype=np.float32)])
    program = Program(modules.weight, inputs, parameters=modules.parameters, expected=expected)
    assert runner.measure(program, timing, PATIENCE_S).error == 0.0

    without = runner.measure(replace(program, parameters=None), timing, PATIENCE_S)
    assert without.status is Status.CRASH
    assert "io_parameters" in without.message


def test_types_that_numpy_lacks_booleans_and_scalars_pass_through(runner, modules, timing, patient, tmp_path):
    inputs, outputs = tmp_path / "inputs.npz", tmp_path / "outputs.npz"
    narrow = np.array([1, 2, 3, 4], "bfloat16")
    save_arrays(inputs, "arg", [np.ones(4, np.float32), narrow, np.array([True, False, True, True])])
    program = Program(modules.mixed, inputs)
    assert runner.measure(program, timing, PATIENCE_S, save_outputs=outputs).status is Status.OK
    total, negated, scalar = load_arrays(outputs, "out")
    assert (total.dtype.name, total.tolist()) == ("bfloat16", [2, 3, 4, 5])
    assert (negated.dtype, negated.tolist()) == (np.bool_, [False, True, False, False])
    assert (scalar.shape, float(scalar)) == ((), 3.0)
    assert runner.measure(replace(program, expected=outputs), timing, PATIENCE_S).error == 0.0


def test_a_slow_program_is_cut_off_after_one_sample(runner, program, timing):
    measured = runner.measure(program, replace(timing, cutoff_s=1e-12), PATIENCE_S)
    assert (measured.status, measured.cut_off, len(measured.samples)) == (Status.OK, True, 1)


def test_a_program_within_the_cutoff_is_not_cut_off(runner, program, timing, patient):
    measured = runner.measure(program, replace(timing, cutoff_s=1e6), PATIENCE_S)
    assert (measured.cut_off, len(measured.samples)) == (False, timing.repetitions)


def test_the_number_of_invocations_can_be_fixed(runner, program, patient):
    measured = runner.measure(program, Timing(min_time_s=1e6, repetitions=2, invocations=3), PATIENCE_S)
    assert len(measured.samples) == 2


def test_programs_are_timed_in_turn_and_fail_alone(runner, program, modules, timing, tmp_path):
    broken = tmp_path / "broken.vmfb"
    broken.write_bytes(modules.matmul.read_bytes()[:1000])
    variants = [
        program,
        replace(program, vmfb=modules.matmul_plus_one),
        program,
        replace(program, vmfb=broken),
    ]
    measured = runner.measure_interleaved(variants, timing, PATIENCE_S)
    assert [one.status for one in measured] == [Status.OK, Status.WRONG_RESULT, Status.OK, Status.CRASH]
    assert [len(one.samples) for one in measured] == [timing.repetitions, 0, timing.repetitions, 0]


@pytest.mark.parametrize("content", [b"", b"garbage" * 100])
def test_what_is_no_module_is_a_crash_and_the_next_is_measured(runner, program, timing, patient, tmp_path, content):
    broken = tmp_path / "broken.vmfb"
    broken.write_bytes(content)
    failed = runner.measure(replace(program, vmfb=broken), timing, PATIENCE_S)
    assert failed.status is Status.CRASH
    assert failed.message
    assert runner.measure(program, timing, PATIENCE_S).status is Status.OK


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([np.ones(4, np.float32)] * 2, "shape"), ([np.ones((32, 32), np.float32)], "expected 2 arguments")],
)
def test_arguments_that_do_not_fit_are_a_crash(runner, program, timing, tmp_path, arguments, message):
    inputs = tmp_path / "inputs.npz"
    save_arrays(inputs, "arg", arguments)
    failed = runner.measure(replace(program, inputs=inputs), timing, PATIENCE_S)
    assert failed.status is Status.CRASH
    assert message in failed.message


def test_a_function_that_is_not_there_is_a_crash(runner, program, timing):
    failed = runner.measure(replace(program, function="forward"), timing, PATIENCE_S)
    assert failed.status is Status.CRASH
    assert "no function 'forward'" in failed.message


@pytest.mark.parametrize("field", ["vmfb", "inputs", "expected", "parameters"])
def test_a_file_that_is_not_there_is_no_fault_of_the_program(runner, program, timing, tmp_path, field):
    with pytest.raises(WorkError, match=r"missing\.file is not there"):
        runner.measure(replace(program, **{field: tmp_path / "missing.file"}), timing, PATIENCE_S)


def test_a_device_that_is_not_there_is_no_fault_of_the_program(program, timing):
    with Runner("abacus") as runner, pytest.raises(WorkError, match=r"cannot open its device.*abacus"):
        runner.measure(program, timing, PATIENCE_S)


def test_the_command_reproduces_the_failure(runner, program, modules, timing):
    failed = runner.measure(replace(program, vmfb=modules.matmul_plus_one), timing, PATIENCE_S)
    shell = subprocess.run(failed.command, shell=True, stdout=subprocess.PIPE, text=True, check=True)
    ready, answer = map(json.loads, shell.stdout.splitlines())
    assert ready == {"ready": True}
    assert answer["results"][0]["message"] == failed.message


def test_relative_paths_mean_the_callers_folder(program, modules, timing, patient, monkeypatch):
    monkeypatch.chdir(modules.folder)
    relative = Program(*(path.relative_to(modules.folder) for path in (program.vmfb, program.inputs)))
    with Runner("local-task") as runner:
        assert runner.measure(relative, timing, PATIENCE_S).status is Status.OK

"""felix-iree-compile: iree-compile's own behaviour, tuned configurations on top, and a clear word when they fail."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from configured import CPU
from iree.compiler import ir
from ops import matmul
from passes.conftest import draw, first_task

from felix_mlir.apply import DEFAULT, build_model, compile_to_flow, compile_tuned, with_tasks
from felix_mlir.compiler.process import tool_path
from felix_mlir.importers import Model, load_model, random_inputs
from felix_mlir.measure import Program, Runner, Status, Timing, save_arrays
from felix_mlir.measure.signature import read_signature
from felix_mlir.native import DRIVER, native_file
from felix_mlir.passes.tuned import FILE_NAME, Tuned, TunedTask, read_tuned, write_tuned
from felix_mlir.schedule import ConfigurationAttributes
from felix_mlir.target import parse_target
from felix_mlir.tasks import extract_tasks

EXAMPLES = Path(__file__).parents[2] / "examples" / "models"
CUDA_FLAGS = ("--iree-hal-target-device=cuda", "--iree-cuda-target=sm_80")
NATIVE = native_file(DRIVER)
DRIVERS = {"python": (sys.executable, "-m", "felix_mlir.passes.driver"), "native": (str(NATIVE),)}
native = pytest.mark.skipif(NATIVE is None, reason="no C++ compiler when felix-mlir was installed")
BOTH = ("python", pytest.param("native", marks=native))


def drive(driver: str, *arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [*DRIVERS[driver], *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False)


def stock(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [tool_path("iree-compile"), *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False)


BLOCKS = ("mlp", "resnet_block", "mobilenet_block", "attention_block")


def result_for(model: Model, folder: Path) -> Tuned:
    """A drawn result for a model, in `folder`/tuned."""
    assert compile_to_flow(model, with_tasks("", CPU, DEFAULT), folder / "flow.mlirbc", 120).ok
    tuned = draw(extract_tasks(folder / "flow.mlirbc", CPU, folder / "tasks"))
    (folder / "tuned").mkdir()
    write_tuned(tuned, folder / "tuned" / FILE_NAME)
    return tuned


@pytest.mark.parametrize("name", BLOCKS)
def test_it_makes_the_module_that_felix_mlir_compile_makes(name, tmp_path):
    """An MLP, a convolution block, a depthwise block and an attention block, byte for byte."""
    # Modules name the file they come from, so all are compiled from one, with the weights outside.
    source = load_model(f"{EXAMPLES / name}.py:build", tmp_path / "model").mlir
    tuned = result_for(load_model(str(source), tmp_path), tmp_path)
    expected = tmp_path / "compile.vmfb"
    assert compile_tuned(str(source), "cpu", tmp_path / "tuned", expected).missing == {}
    for driver in DRIVERS if NATIVE else ("python",):
        output = tmp_path / f"{driver}.vmfb"
        done = drive(driver, source, f"--felix-tuned={tmp_path / 'tuned'}", "--felix-print-landed", "-o", output)
        assert done.returncode == 0, done.stderr
        landed = [line for line in done.stderr.decode().splitlines() if " landed in " in line]
        assert len({line.split()[2] for line in landed}) == len(tuned.tasks)
        assert output.read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("name", BLOCKS)
def test_a_model_with_configurations_computes_what_the_default_does(name, tmp_path):
    source = f"{EXAMPLES / name}.py:build"
    result_for(load_model(source, tmp_path / "model"), tmp_path)
    plain, tuned = tmp_path / "plain.vmfb", tmp_path / "tuned.vmfb"
    assert build_model(tmp_path / "flow.mlirbc", with_tasks("", CPU, DEFAULT), plain, 120).outcome.ok
    assert compile_tuned(source, "cpu", tmp_path / "tuned", tuned).missing == {}
    inputs, outputs = tmp_path / "in.npz", tmp_path / "out.npz"
    save_arrays(inputs, "arg", list(random_inputs(read_signature(plain).inputs, 0)))
    with Runner(CPU.device) as runner:
        assert runner.measure(Program(plain, inputs), Timing(0.001, 1), 60, outputs).status is Status.OK
        program = Program(tuned, inputs, expected=outputs, tolerance=1e-4)
        assert runner.measure(program, Timing(0.001, 1), 60).status is Status.OK


@pytest.mark.parametrize("driver", BOTH)
def test_an_f16_matmul_for_cuda(driver, tmp_path):
    """To PTX, without a device: the configuration shows in the workgroup size of the generated kernel."""
    (source := tmp_path / "model.mlir").write_text(matmul(256, 256, 512).replace("f32", "f16"))
    found = tmp_path / "tasks.mlir"
    extracted = drive(driver, source, *CUDA_FLAGS, f"--felix-extract-tasks={found}", "-o", tmp_path / "plain.vmfb")
    assert extracted.returncode == 0, extracted.stderr
    tuned = cuda_result(found)
    write_tuned(tuned, tmp_path / FILE_NAME)
    done = drive(driver, "--felix-print-landed", source, f"--felix-tuned={tmp_path}", "-o", tmp_path / "tuned.vmfb")
    assert done.returncode == 0, done.stderr
    assert b" landed in " in done.stderr
    assert compile_tuned(str(source), "cuda:sm_80", tmp_path, tmp_path / "ours.vmfb").missing == {}
    assert (tmp_path / "tuned.vmfb").read_bytes() == (tmp_path / "ours.vmfb").read_bytes()
    (size,) = {task.attributes.translation_info.split("workgroup_size = [")[1].split(",")[0] for task in tuned.tasks}
    assert f".maxntid {size}".encode() in (tmp_path / "tuned.vmfb").read_bytes()
    assert f".maxntid {size}".encode() not in (tmp_path / "plain.vmfb").read_bytes()


def cuda_result(found: Path) -> Tuned:
    """The result that halves the tile of each subgroup, so that a workgroup has twice as many."""
    with ir.Context():
        module = ir.Module.parse(found.read_text()).operation
        (task,) = (op.operation for op in module.regions[0].blocks[0])
        form = ir.StringAttr(task.attributes["felix.form"]).value
        (config,) = map(str, ir.ArrayAttr(task.attributes["felix.lowering_configs"]))
        info = str(task.attributes["felix.translation_info"])
    assert "subgroup = [2, 4, 0]" in config
    assert "workgroup_size = [128, 1, 1]" in info
    config = config.replace("subgroup = [2, 4, 0]", "subgroup = [2, 2, 0]")
    info = info.replace("workgroup_size = [128, 1, 1]", "workgroup_size = [256, 1, 1]")
    changed = TunedTask("matmul", form, ConfigurationAttributes(info, (config,)))
    return with_tasks("model.mlir", parse_target("cuda:sm_80"), DEFAULT, [changed])


@pytest.mark.parametrize("driver", BOTH)
def test_without_a_result_it_is_iree_compile(driver, example, tmp_path):
    if driver == "python":
        pytest.skip("the driver in Python needs a result or --felix-extract-tasks")
    for arguments in (
        (example.source, *CPU.compile_flags, "-o", "OUT"),
        (example.source, *CPU.compile_flags, "--compile-to=flow", "-o", "OUT"),
        ("--version",),
        ("no-such-file.mlir",),
        (example.source, "--iree-no-such-flag"),
    ):
        ours, theirs = tmp_path / "ours", tmp_path / "theirs"
        one = drive(driver, *(ours if a == "OUT" else a for a in arguments))
        two = stock(*(theirs if a == "OUT" else a for a in arguments))
        assert one.returncode == two.returncode
        assert one.stdout == two.stdout
        assert ours.exists() == theirs.exists()
        assert not ours.exists() or ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize("driver", BOTH)
def test_stages_pipes_and_flags_behave(driver, example, tmp_path):
    tuned = f"--felix-tuned={example.folder}"
    whole = drive(driver, example.source, tuned, "-o", tmp_path / "whole.vmfb")
    assert whole.returncode == 0, whole.stderr
    expected = (tmp_path / "whole.vmfb").read_bytes()
    piped = drive(driver, "-", tuned, "-o", "-", stdin=example.source.read_bytes())
    assert piped.returncode == 0, piped.stderr
    filed = drive(driver, "-", tuned, "-o", tmp_path / "piped.vmfb", stdin=example.source.read_bytes())
    assert filed.returncode == 0, filed.stderr
    # The name of the source is in the module.
    assert piped.stdout == (tmp_path / "piped.vmfb").read_bytes() != expected

    early = drive(driver, example.source, tuned, "--compile-to=flow", "-o", tmp_path / "flow.mlir")
    assert early.returncode == 0
    assert b"nothing is applied before" in early.stderr
    late = drive(driver, tmp_path / "flow.mlir", tuned, "--compile-from=flow", "-o", tmp_path / "late.vmfb")
    assert late.returncode == 0, late.stderr

    middle = tmp_path / "configured.mlir"
    assert drive(driver, example.source, tuned, "--compile-to=executable-configurations", "-o", middle).returncode == 0
    config = example.tuned.tasks[0].attributes.lowering_configs[0]
    assert config.removeprefix("#iree_cpu.") in middle.read_text()
    end = stock(middle, *CPU.compile_flags, "--compile-from=executable-configurations", "-o", tmp_path / "end.vmfb")
    assert end.returncode == 0, end.stderr

    too_late = drive(driver, middle, tuned, "--compile-from=executable-targets", "-o", tmp_path / "x.vmfb")
    assert too_late.returncode == 2
    assert not (tmp_path / "x.vmfb").exists()


@pytest.mark.parametrize("driver", BOTH)
def test_what_is_wrong_is_said_and_nothing_is_written(driver, example, tmp_path):
    output = tmp_path / "out.vmfb"

    def refused(status: int, message: str, *arguments: object) -> None:
        done = drive(driver, example.source, "-o", output, *arguments)
        assert done.returncode == status, done.stderr
        assert message in done.stderr.decode()
        assert not output.exists()

    def changed(name: str, change) -> str:
        return f"--felix-tuned={example.change(change, tmp_path / name)}"

    (cut := tmp_path / "cut.mlir").write_text((example.folder / FILE_NAME).read_text()[:2000])
    refused(2, "is damaged", f"--felix-tuned={cut}")
    refused(2, "no tuning result", f"--felix-tuned={tmp_path / 'nowhere'}")
    refused(2, "was tuned with iree-base-compiler 1.0", changed("old", lambda tuned: replace(tuned, compiler="1.0")))
    refused(2, "another executable target", f"--felix-tuned={example.folder}", *CPU.compile_flags[:2],
            "--iree-llvmcpu-target-cpu=generic")  # fmt: skip
    refused(2, "another model or target", f"--felix-tuned={example.folder}", *CUDA_FLAGS)
    attributes = example.tuned.tasks[0].attributes
    short = replace(attributes, lowering_configs=attributes.lowering_configs[:1])
    refused(1, "did not land", changed("short", first_task(attributes=short)))
    refused(1, "workgroups", changed("ignored", first_task(workgroups=12345)))
    refused(2, "felix-no-such-flag", f"--felix-tuned={example.folder}", "--felix-no-such-flag")
    # A broken compile ends as iree-compile's own.
    broken = unvectorisable(attributes)
    refused(1, "error", changed("broken", first_task(attributes=broken, workgroups=None)))

    lenient = drive(driver, example.source, "-o", output, f"--felix-tuned={tmp_path / 'short'}",
                    "--felix-require-landed=false")  # fmt: skip
    assert lenient.returncode == 0
    assert b"warning: felix: " in lenient.stderr
    assert output.exists()


@pytest.mark.parametrize("driver", BOTH)
def test_another_models_result_is_refused_and_named(driver, example, tmp_path):
    (other := tmp_path / "other.mlir").write_text(matmul(64, 64, 64))
    done = drive(driver, other, f"--felix-tuned={example.folder}", "-o", tmp_path / "out.vmfb")
    assert done.returncode == 2
    assert b"another model" in done.stderr
    assert not (tmp_path / "out.vmfb").exists()


@native
def test_crash_reproducers_and_dumps_work_as_in_iree_compile(example, tmp_path):
    attributes = example.tuned.tasks[0].attributes
    broken = example.change(first_task(attributes=unvectorisable(attributes), workgroups=None), tmp_path / "broken")
    reproducer, dumps = tmp_path / "reproducer.mlir", tmp_path / "dumps"
    flag = f"--mlir-pass-pipeline-crash-reproducer={reproducer}"
    done = drive("native", example.source, f"--felix-tuned={broken}", flag, "-o", tmp_path / "x.vmfb")
    assert done.returncode == 1
    assert not (tmp_path / "x.vmfb").exists()
    assert "pipeline" in reproducer.read_text()
    done = drive(
        "native", example.source, f"--felix-tuned={example.folder}", f"--dump-compilation-phases-to={dumps}",
        "-o", tmp_path / "x.vmfb",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    stock(example.source, *CPU.compile_flags, f"--dump-compilation-phases-to={tmp_path / 'stock'}", "-o", "/dev/null")
    assert sorted(p.name for p in dumps.iterdir()) == sorted(p.name for p in (tmp_path / "stock").iterdir())


def unvectorisable(attributes: ConfigurationAttributes) -> ConfigurationAttributes:
    """A configuration that the compiler takes and then fails on: vectors far too large."""
    config = "#iree_cpu.lowering_config<vector_common_parallel = [64, 64, 64]>"
    return replace(attributes, lowering_configs=(config,) * len(attributes.lowering_configs))


def test_a_result_can_be_read_by_what_wrote_it(example):
    assert read_tuned(example.folder, example.tuned.compiler) == example.tuned
    assert np.isfinite(example.tuned.tasks[0].workgroups)

"""tuning_spec.mlir with a stock iree-compile: every op kind, alone and beside dispatches that differ little."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from configured import CPU, compile_checked, write_flow
from iree.compiler import ir
from ops import KINDS
from passes.programs import APART, CONDITIONAL, MLP, NEAR, joined

from felix_mlir.apply import tuned_task
from felix_mlir.compiler.parallel import run_parallel
from felix_mlir.passes.tuning_spec import LIBRARY_FLAG, SpecTask, TuningSpec, tuning_spec
from felix_mlir.schedule import ConfigurationAttributes, LegalSpace, configured_functions, read_attributes
from felix_mlir.target import Target, parse_target
from felix_mlir.tasks import Task, extract_tasks

CUDA = parse_target("cuda:sm_80")


def wanted(task: Task) -> SpecTask:
    """Draw a configuration that is not the compiler's."""
    assert task.tunable
    template = next(template for template in task.tunable.templates if template.knobs)
    for values in LegalSpace(template).draw(4, np.random.default_rng(1)):
        configuration = template.configuration(values)
        if configuration != task.tunable.default:
            break
    tuned = tuned_task(task.id, task.tunable.configured, configuration)
    return SpecTask(task.id, task.tunable.configured.read_text(), tuned.attributes)


def read(source: Path, name: str, spec: TuningSpec | None, target: Target = CPU) -> dict[str, ConfigurationAttributes]:
    """Compile with the stock compiler and a spec; return what each executable is configured for."""
    library, output = source.with_name(f"{name}.spec.mlir"), source.with_name(f"{name}.out.mlir")
    flags = (*target.compile_flags, "--compile-to=executable-configurations", "-o", str(output))
    if spec:
        library.write_text(spec.text)
        flags = (*flags, f"{LIBRARY_FLAG}={library}")
    compile_checked(str(source), *flags)
    with ir.Context():
        module = ir.Module.parse(output.read_text())
        functions = configured_functions(module.operation)
        return {executable: read_attributes(function) for executable, function in functions.items()}


class Compiled:
    """A model, its tasks, and the default configuration of each executable."""

    def __init__(self, mlir: str, folder: Path, target: Target = CPU) -> None:
        tasks = extract_tasks(write_flow(mlir, folder, target), target, folder / "tasks")
        self.source = folder / "model.mlir"
        self.executables = {task.id: task.executables for task in tasks}
        self.tasks = [wanted(task) for task in tasks if task.tunable]
        self.default = read(self.source, "default", None, target)

    def task(self, function: str) -> SpecTask:
        return next(task for task in self.tasks if f"{function}_dispatch_0" in self.executables[task.id])

    def expected(self, tasks: Sequence[SpecTask]) -> dict[str, ConfigurationAttributes]:
        changed = {name: task.attributes for task in tasks for name in self.executables[task.id]}
        return {**self.default, **changed}


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(joined({**KINDS, **NEAR}), tmp_path_factory.mktemp("every"))


@pytest.fixture(scope="module")
def landed(every) -> dict[str, ConfigurationAttributes]:
    spec = tuning_spec(every.tasks, CPU.compile_flags)
    assert spec.uncarried == {}
    return read(every.source, "all", spec)


@pytest.mark.parametrize("kind", [*KINDS, *NEAR])
def test_a_configuration_lands_on_its_op_kind(every, landed, kind):
    task = every.task(kind)
    assert task.attributes != every.default[f"{kind}_dispatch_0"]
    assert landed[f"{kind}_dispatch_0"] == task.attributes


def test_no_other_dispatch_is_touched(every, tmp_path):
    functions = {name: KINDS.get(name) or NEAR[name] for name in dict.fromkeys((*sum(APART, ()), *NEAR))}
    (source := tmp_path / "model.mlir").write_text(joined(functions))
    default = {name: every.default[name] for name in (f"{function}_dispatch_0" for function in functions)}

    def check(names: Sequence[str]) -> None:
        tasks = [every.task(name) for name in names]
        changed = {f"{name}_dispatch_0": task.attributes for name, task in zip(names, tasks, strict=True)}
        assert read(source, names[0], tuning_spec(tasks, CPU.compile_flags)) == {**default, **changed}

    run_parallel(CPU.cores, [partial(check, names) for names in APART])


def test_other_dispatches_get_the_same_code(every, tmp_path):
    """A convolution with an epilogue is one of those the library's passes rewrite."""
    (source := tmp_path / "model.mlir").write_text(KINDS["conv2d_nchw"])
    (library := tmp_path / "spec.mlir").write_text(tuning_spec([every.task("softmax")], CPU.compile_flags).text)
    plain, other = tmp_path / "plain.vmfb", tmp_path / "other.vmfb"
    compile_checked(str(source), *CPU.compile_flags, "-o", str(plain))
    compile_checked(str(source), *CPU.compile_flags, f"{LIBRARY_FLAG}={library}", "-o", str(other))
    assert plain.read_bytes() == other.read_bytes()


def test_isolated_tasks_are_found_in_their_model(tmp_path):
    """In the model operands lie elsewhere in other buffers than in the isolated programs."""
    model = Compiled(MLP, tmp_path)
    assert len(model.tasks) == 4
    spec = tuning_spec(model.tasks, CPU.compile_flags)
    assert read(model.source, "all", spec) == model.expected(model.tasks)


def test_configurations_land_on_a_gpu(tmp_path):
    kinds = {name: KINDS[name] for name in ("conv2d_nchw", "matmul_f16", "layer_norm")}
    (source := tmp_path / "model.mlir").write_text(joined(kinds))
    default = read(source, "default", None, CUDA)
    configured = (tmp_path / "default.out.mlir").read_text()
    changed = {name: halved(attributes) for name, attributes in default.items()}
    assert all(changed[name] != default[name] for name in default)
    tasks = [SpecTask(name, only(configured, name), attributes) for name, attributes in changed.items()]
    assert read(source, "all", tuning_spec(tasks, CUDA.compile_flags), CUDA) == changed
    one = read(source, "one", tuning_spec(tasks[:1], CUDA.compile_flags), CUDA)
    assert one == {**default, tasks[0].id: tasks[0].attributes}


def halved(attributes: ConfigurationAttributes) -> ConfigurationAttributes:
    """Halve the last size of a GPU configuration that can be halved."""
    *_, size = re.finditer(r"\b(\d*[02468])(?=[,\]])(?<![,\[ ]0)", root := attributes.lowering_configs[-1])
    changed = f"{root[: size.start()]}{int(size[0]) // 2}{root[size.end() :]}"
    return ConfigurationAttributes(attributes.translation_info, (*attributes.lowering_configs[:-1], changed))


def only(configured: str, executable: str) -> str:
    """Return a configured module with one of its executables."""
    with ir.Context():
        module = ir.Module.parse(configured)
        for op in list(module.body):
            if op.operation.name == "util.func" or (
                op.operation.name == "hal.executable" and op.attributes["sym_name"].value != executable
            ):
                op.operation.erase()
        return str(module)


def test_what_is_not_carried_is_said(tmp_path):
    model = Compiled(joined({"softmax": KINDS["softmax"], "conditional": CONDITIONAL}), tmp_path)
    softmax_task, conditional = model.task("softmax"), model.task("conditional")
    short = ConfigurationAttributes(softmax_task.attributes.translation_info, ())
    wrong, again = (SpecTask(id_, softmax_task.configured, short) for id_ in ("wrong", "again"))
    spec = tuning_spec([conditional, wrong, softmax_task, again], CPU.compile_flags)
    assert list(spec.uncarried) == [conditional.id, "wrong", "again"]
    assert "nested regions" in spec.uncarried[conditional.id]
    assert "the configuration is for 0" in spec.uncarried["wrong"]
    assert f"task {softmax_task.id} is for the same dispatch" in spec.uncarried["again"]
    for id_, reason in spec.uncarried.items():
        assert f"// Task {id_} is not in this file: {reason}." in spec.text
    assert read(model.source, "rest", spec) == model.expected([softmax_task])


def test_the_file_says_how_to_use_it():
    text = tuning_spec([], ("--iree-some-flag", "--another=1")).text
    assert text.startswith("// Tile sizes found by felix-mlir, for iree-compile from iree-base-compiler 3.")
    assert f"iree-compile MODEL --iree-some-flag --another=1 {LIBRARY_FLAG}=tuning_spec.mlir" in text

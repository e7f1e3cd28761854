"""The passes on IREE's PassManager, in Python and in C++: same IR, same words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from configured import configured_module
from iree.compiler import ir
from iree.compiler.passmanager import PassManager
from ops import KINDS
from passes.conftest import MODEL, first_task

from felix_mlir.errors import RequestError
from felix_mlir.passes import (
    add_apply_tuned,
    add_extract_tasks,
    add_feature_report,
    add_native_apply_tuned,
    add_native_extract_tasks,
    has_native,
    read_tuned,
)
from felix_mlir.passes.tuned import FILE_NAME, tasks_text, to_text, write_tuned

native = pytest.mark.skipif(not has_native(), reason="no C++ compiler when felix-mlir was installed")
BOTH = ("python", pytest.param("native", marks=native))


@pytest.fixture(scope="module")
def configured() -> str:
    return str(configured_module(MODEL))


def run(text: str, *adders) -> str:
    """Parse a module, run what `adders` add to a pass manager, print it."""
    with ir.Context():
        module = ir.Module.parse(text)
        manager = PassManager("builtin.module")
        for add in adders:
            add(manager)
        manager.run(module.operation)
        return str(module)


def apply_of(kind: str, path: Path, lines: list[str] | None = None, *, require_landed: bool = True):
    found = [] if lines is None else lines
    if kind == "native":
        return lambda pm: add_native_apply_tuned(pm, path, require_landed=require_landed, sink=found.append)
    return lambda pm: add_apply_tuned(
        pm, path, require_landed=require_landed, sink=lambda landing: found.extend(landing.lines())
    )


@pytest.mark.parametrize("kind", BOTH)
def test_configurations_are_written_and_nothing_else_changes(configured, example, kind):
    lines: list[str] = []
    after = run(configured, apply_of(kind, example.folder, lines))
    assert lines == [f"felix: task {task.id} landed in {name}" for task, name in landed(example)]
    changed = [(a, b) for a, b in zip(configured.splitlines(), after.splitlines(), strict=True) if a != b]
    assert changed
    assert all("lowering_config" in a or "translation_info" in a for a, _ in changed)
    for task in example.tuned.tasks:
        assert all(config.split("<", 1)[1][:-1] in after for config in task.attributes.lowering_configs)


def landed(example):
    tasks = {task.id: task for task in example.tasks}
    return [(task, name) for task in example.tuned.tasks for name in tasks[task.id].executables]


@native
def test_both_write_the_same(configured, example):
    assert run(configured, apply_of("native", example.folder)) == run(configured, apply_of("python", example.folder))


@pytest.mark.parametrize("kind", BOTH)
def test_passes_mix_with_textual_ones(configured, example, kind):
    def textual(pm: PassManager) -> None:
        pm.add("canonicalize,cse")

    both = run(configured, textual, apply_of(kind, example.folder), textual)
    assert all(c.split("<", 1)[1][:-1] in both for t in example.tuned.tasks for c in t.attributes.lowering_configs)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("require_landed", [True, False])
def test_a_configuration_of_other_ops_fails_the_pass_unless_told_otherwise(
    configured, example, tmp_path, kind, require_landed
):
    short = example.tuned.tasks[0].attributes
    short = replace(short, lowering_configs=short.lowering_configs[:1])
    folder = example.change(first_task(attributes=short), tmp_path / "short")
    lines: list[str] = []
    if require_landed:
        with pytest.raises(ir.MLIRError, match="compute ops, the configuration is for 1"):
            run(configured, apply_of(kind, folder, lines))
    else:
        run(configured, apply_of(kind, folder, lines, require_landed=False))
    assert "did not land in" in lines[0]
    assert "the configuration is for 1" in lines[0]


@pytest.mark.parametrize("kind", BOTH)
def test_a_near_miss_is_named(example, kind):
    """The same ops at other shapes."""
    lines: list[str] = []
    run(str(configured_module(MODEL.replace("32x", "64x"))), apply_of(kind, example.folder, lines))
    assert all("has no dispatch here" in line for line in lines)
    assert any("is like it, but" in line and "has type" in line for line in lines)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: text.replace("felix.format = 1", "felix.format = 7"), "another version of felix-mlir"),
        (lambda text: text.replace('felix.compiler = "', 'felix.compiler = "9'), "was tuned with iree-base-compiler 9"),
        (lambda _: "", "damaged"),
        (lambda _: "\x00\xff", "damaged"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(configured, example, tmp_path, kind, spoil, message):
    (tmp_path / FILE_NAME).write_text(spoil(to_text(example.tuned)))
    with pytest.raises(RequestError, match=message) as refused:
        run(configured, apply_of(kind, tmp_path))
    assert "\n" not in str(refused.value)
    with pytest.raises(RequestError, match="no tuning result"):
        run(configured, apply_of(kind, tmp_path / "nowhere"))


@pytest.mark.parametrize("kind", ["matmul", "conv2d_nhwc", "softmax", "layer_norm", "pool_nchw_sum", "transpose"])
@native
def test_both_extract_the_same_tasks(kind, tmp_path):
    text = str(configured_module(KINDS[kind]))
    found = []
    run(text, lambda pm: add_extract_tasks(pm, found.append))
    run(text, lambda pm: add_native_extract_tasks(pm, tmp_path / "tasks.mlir"))
    assert found
    with ir.Context():
        assert str(ir.Module.parse(tasks_text(found))) == str(ir.Module.parse((tmp_path / "tasks.mlir").read_text()))


def test_equal_dispatches_are_one_task():
    twice = """
    func.func @main(%a: tensor<64x64xf32>, %b: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
      %zero = arith.constant 0.0 : f32
      %empty = tensor.empty() : tensor<64x64xf32>
      %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x64xf32>) -> tensor<64x64xf32>
      %c = linalg.matmul ins(%a, %b : tensor<64x64xf32>, tensor<64x64xf32>) outs(%init : tensor<64x64xf32>)
        -> tensor<64x64xf32>
      %d = linalg.matmul ins(%c, %a : tensor<64x64xf32>, tensor<64x64xf32>) outs(%init : tensor<64x64xf32>)
        -> tensor<64x64xf32>
      return %c, %d : tensor<64x64xf32>, tensor<64x64xf32>
    }"""
    found = []
    run(str(configured_module(twice)), lambda pm: add_extract_tasks(pm, found.append))
    assert len({task.form for task in found}) == len(found) == 1


def test_features_are_reported_by_a_pass(configured):
    found = []
    assert run(configured, lambda pm: add_feature_report(pm, found.append)) == configured
    assert [report.reason for report in found if report.features]


def test_a_result_reads_back_as_it_was_written(example, tmp_path):
    odd = replace(
        example.tuned,
        model='a "model"\\with\todd names\n',
        model_flags=("--one=builtin.module(util.func(a{b=c}))", '--two="'),
    )
    write_tuned(odd, tmp_path / FILE_NAME)
    assert read_tuned(tmp_path, odd.compiler) == read_tuned(tmp_path / FILE_NAME, odd.compiler) == odd

"""Tasks: nothing disappears, equal dispatches are one task, and an isolated task is the dispatch of the model."""

from __future__ import annotations

import re

import pytest
from configured import CPU, write_flow
from ops import conv2d_nchw, matmul

from felix_mlir.tasks import extract_tasks

TWO_EQUAL_LAYERS = """
func.func @main(%x: tensor<64x128xf32>, %w: tensor<128x128xf32>, %v: tensor<128x128xf32>) -> tensor<64x128xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x128xf32>) -> tensor<64x128xf32>
  %a = linalg.matmul ins(%x, %w : tensor<64x128xf32>, tensor<128x128xf32>) outs(%init : tensor<64x128xf32>) -> tensor<64x128xf32>
  %b = linalg.matmul ins(%a, %v : tensor<64x128xf32>, tensor<128x128xf32>) outs(%init : tensor<64x128xf32>) -> tensor<64x128xf32>
  return %b : tensor<64x128xf32>
}"""  # noqa: E501

DYNAMIC = """
func.func @main(%x: tensor<?x128xf32>, %w: tensor<128x64xf32>) -> tensor<?x64xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x128xf32>
  %empty = tensor.empty(%n) : tensor<?x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x64xf32>) -> tensor<?x64xf32>
  %a = linalg.matmul ins(%x, %w : tensor<?x128xf32>, tensor<128x64xf32>) outs(%init : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %a : tensor<?x64xf32>
}"""  # noqa: E501


def tasks_of_module(mlir: str, folder):
    return extract_tasks(write_flow(mlir, folder), CPU, folder / "tasks")


def test_equal_dispatches_are_one_task_with_their_number(tmp_path):
    (task,) = tasks_of_module(TWO_EQUAL_LAYERS, tmp_path)
    assert (task.kind, task.iteration_space, task.count) == ("matmul", (64, 128, 128), 2)
    assert task.element_types == "f32"


def test_every_dispatch_of_the_model_belongs_to_exactly_one_task(tmp_path):
    flow = write_flow(conv2d_nchw(30, 16, 32, 3, epilogue=True), tmp_path)
    tasks = extract_tasks(flow, CPU, tmp_path / "tasks")
    text = (tmp_path / "model.mlir").read_text()
    assert text
    executables = [name for task in tasks for name in task.executables]
    from iree.compiler import ir

    with ir.Context():
        names = re.findall(r"flow.executable private @(\w+)", str(ir.Module.parse(flow.read_bytes())))
    assert sorted(executables) == sorted(names)


def test_a_dispatch_nothing_can_be_done_for_keeps_a_reason(tmp_path):
    (task,) = tasks_of_module(DYNAMIC, tmp_path)
    assert task.tunable is None
    assert "dynamic" in task.reason


def test_ids_depend_on_structure_and_not_on_names(tmp_path):
    def id_of(mlir, name):
        (folder := tmp_path / name).mkdir()
        (task,) = tasks_of_module(mlir, folder)
        return task.id

    one = matmul(64, 96, 128)
    renamed = one.replace("%result", "%other").replace("@main", "@forward")
    assert id_of(one, "a") == id_of(renamed, "b")
    others = [matmul(64, 96, 127), matmul(64, 96, 128, element="f16"), matmul(64, 96, 128, epilogue=True)]
    ids = [id_of(mlir, str(index)) for index, mlir in enumerate(others)]
    assert len({id_of(one, "c"), *ids}) == 4


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("matmul", "matmul"),
        ("batch_matmul", "batch matmul"),
        ("matvec", "matvec"),
        ("vecmat", "matvec"),
        ("matmul_transposed", "matmul"),
        ("conv1d_nwc", "conv1d"),
        ("conv2d_nchw", "conv2d"),
        ("conv2d_nhwc_strided", "conv2d"),
        ("conv2d_1x1", "matmul"),
        ("conv3d_ncdhw", "conv3d"),
        ("depthwise_nchw", "depthwise conv2d"),
        ("depthwise_nhwc", "depthwise conv2d"),
        ("grouped", "grouped conv2d"),
        ("pool_nhwc_max", "pooling2d"),
        ("reduction", "reduction"),
        ("softmax", "reduction"),
        ("elementwise", "elementwise"),
        ("transpose", "copy or transpose"),
    ],
)
def test_root_ops_are_called_what_they_are(tasks_of, kind, name):
    assert tasks_of(kind).root.kind == name

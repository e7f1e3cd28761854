"""Sources that are files: MLIR and torch.export archives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from importer_helpers import Holding, check

from felix_mlir.errors import RequestError
from felix_mlir.importers import load_model

MLIR = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = arith.addf %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
"""


def refusal(source: object, directory: Path, example_inputs: object = None) -> str:
    """Return the message, one line, with which `source` is refused; nothing is written."""
    before = sorted(directory.iterdir())
    with pytest.raises(RequestError) as caught:
        load_model(source, directory / "out", example_inputs)  # type: ignore[arg-type]
    message = str(caught.value)
    assert message and "\n" not in message
    assert not [path for path in directory.glob("out/*") if path not in before]
    return message


@pytest.mark.parametrize("as_path", [str, Path])
@pytest.mark.parametrize("suffix", [".mlir", ".mlirbc"])
def test_mlir_is_used_in_place(tmp_path: Path, suffix: str, as_path: type) -> None:
    source = tmp_path / f"my model{suffix}"
    source.write_text(MLIR)
    model = load_model(as_path(source), tmp_path / "out")
    assert model.mlir == source
    assert model.name == "my_model"
    assert (model.parameters, model.inputs, model.reference, model.embed_parameters) == (
        None,
        None,
        None,
        False,
    )
    assert model.compile_flags() == ()
    assert not (tmp_path / "out").exists()


def test_mlir_needs_no_torch(tmp_path: Path) -> None:
    source = tmp_path / "m.mlir"
    source.write_text(MLIR)
    code = (
        "import sys; from pathlib import Path; from felix_mlir.importers import load_model; "
        "load_model(sys.argv[1], Path('.')); print('torch' in sys.modules)"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, str(source)], capture_output=True, text=True, timeout=60, check=True
    )
    assert child.stdout.strip() == "False"


@pytest.mark.parametrize("suffix", [".mlir", ".mlirbc", ".pt2"])
def test_unreadable_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"m{suffix}"
    assert refusal(path, tmp_path) == f"no such file '{path}': give the path of an existing model"
    path.mkdir()
    assert refusal(path, tmp_path) == f"'{path}' is a directory: give the path of the model file in it"
    path.rmdir()
    path.touch()
    assert refusal(path, tmp_path) == f"'{path}' is empty: write the model again"


@pytest.mark.parametrize("name", ["model.onnx", "model", ""])
def test_unknown_suffix(tmp_path: Path, name: str) -> None:
    message = refusal(name, tmp_path)
    assert message.startswith(f"'{name}' is no model: expected a .mlir, .mlirbc or .pt2 file, or file.py:function")


def test_python_file_without_function(tmp_path: Path) -> None:
    assert refusal("nets/x.py", tmp_path) == "'nets/x.py' names no function: write nets/x.py:function"


def test_example_inputs_of_a_file(tmp_path: Path) -> None:
    message = refusal("m.mlir", tmp_path, (torch.ones(1),))
    assert message == "'m.mlir' takes no example_inputs: they go with an nn.Module"


def test_archive(tmp_path: Path) -> None:
    module = Holding(torch.randn(40, 40), lambda held, x, y: {"b": x @ held, "a": [y, x]}, persistent=False)
    inputs = (torch.randn(3, 40), torch.randn(2))
    torch.export.save(torch.export.export(module, inputs), tmp_path / "net.pt2")
    model = load_model(tmp_path / "net.pt2", tmp_path / "out")
    assert model.name == "net"
    assert model.mlir == tmp_path / "out" / "net.mlir"
    assert model.inputs is not None and model.reference is not None
    for array, tensor in zip(model.inputs, inputs, strict=True):
        np.testing.assert_array_equal(array, tensor.numpy())
    expected = (inputs[0] @ module.held, inputs[1], inputs[0])
    for array, tensor in zip(model.reference, expected, strict=True):
        np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-5, atol=1e-5)
    check(model)


def test_archive_with_keywords_and_constants(tmp_path: Path) -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor, times: int, *, offset: torch.Tensor) -> torch.Tensor:
            return x * times + offset

    x, offset = torch.randn(3), torch.randn(3)
    program = torch.export.export(Scaled(), (x, 2), {"offset": offset})
    torch.export.save(program, tmp_path / "scaled.pt2")
    model = load_model(tmp_path / "scaled.pt2", tmp_path)
    assert model.inputs is not None
    for array, tensor in zip(model.inputs, (x, offset), strict=True):
        np.testing.assert_array_equal(array, tensor.numpy())
    check(model)


@pytest.mark.parametrize("size", [3, 1000])
def test_corrupt_archive(tmp_path: Path, size: int) -> None:
    torch.export.save(torch.export.export(torch.nn.Linear(9, 9), (torch.ones(1, 9),)), tmp_path / "net.pt2")
    whole = (tmp_path / "net.pt2").read_bytes()
    assert len(whole) > size
    (tmp_path / "net.pt2").write_bytes(whole[:size])
    message = refusal(tmp_path / "net.pt2", tmp_path)
    assert message.startswith(f"'{tmp_path}/net.pt2' is not a torch.export archive: ")


def test_archive_without_inputs(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    program.example_inputs = None
    torch.export.save(program, tmp_path / "net.pt2")
    message = refusal(tmp_path / "net.pt2", tmp_path)
    assert message.startswith(f"'{tmp_path}/net.pt2' holds no example inputs: ")


def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(RequestError, match=r"^cannot make the directory '.*out': File exists$"):
        load_model(torch.nn.ReLU(), tmp_path / "out", (torch.ones(2),))

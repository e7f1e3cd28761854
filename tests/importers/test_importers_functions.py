"""Sources that are functions: file.py:function and package.module:function."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from felix_mlir.errors import RequestError
from felix_mlir.importers import load_model

HEADER = "import sys, torch\nfrom torch import nn\n"
GOOD = HEADER + "def build(): return nn.ReLU(), (torch.tensor([-1.0, 2.0]),)\n"


def refusal(source: str, directory: Path) -> str:
    """Return the message, one line, with which `source` is refused."""
    with pytest.raises(RequestError) as caught:
        load_model(source, directory)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_function_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "relu net.py").write_text(GOOD)
    model = load_model(f"{tmp_path}/relu net.py:build", tmp_path / "out")
    assert model.name == "relu_net_build"
    assert model.mlir == tmp_path / "out" / "relu_net_build.mlir"
    assert model.inputs is not None and model.reference is not None
    np.testing.assert_array_equal(model.inputs[0], np.array([-1, 2], np.float32))
    np.testing.assert_array_equal(model.reference[0], np.array([0, 2], np.float32))


def test_function_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "felix_zoo").mkdir()
    (tmp_path / "felix_zoo" / "nets.py").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    assert load_model("felix_zoo.nets:build", tmp_path).name == "nets_build"
    assert sys.path == path


def test_file_is_run_afresh_with_its_folder_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "felix_sibling.py").write_text("SLOPE = 0.5\n")
    file = tmp_path / "torch.py"  # Its name must hide nothing.
    file.write_text(
        HEADER + "import felix_sibling\n"
        "def build():\n"
        "    from felix_sibling import SLOPE\n"
        "    return nn.LeakyReLU(SLOPE), [torch.tensor([-8.0])]\n"
    )
    path = list(sys.path)
    first = load_model(f"{file}:build", tmp_path)
    file.write_text(file.read_text().replace("-8.0", "-16.0"))
    second = load_model(f"{file}:build", tmp_path)
    assert first.reference is not None and second.reference is not None
    assert [first.reference[0].item(), second.reference[0].item()] == [-4.0, -8.0]
    assert sys.path == path
    assert Path(sys.modules["torch"].__file__ or "").parent.name == "torch"


def test_missing_file(tmp_path: Path) -> None:
    source = f"{tmp_path}/x.py"
    assert refusal(f"{source}:build", tmp_path) == f"no such file '{source}': give the path of an existing .py file"


def test_missing_module(tmp_path: Path) -> None:
    assert refusal("felix_no.such:build", tmp_path) == (
        "importing felix_no.such raised ModuleNotFoundError: No module named 'felix_no'"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GOOD, "has no function 'make': name a function it defines"),
        (GOOD + "make = 3", "has a int, not a function, 'make': name a function it defines"),
    ],
)
def test_missing_function(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "x.py").write_text(text)
    assert refusal(f"{tmp_path}/x.py:make", tmp_path) == f"{tmp_path}/x.py {problem}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def build(:", "SyntaxError: invalid syntax (x.py, line 1)"),
        ("import felix_no_such", "ModuleNotFoundError: No module named 'felix_no_such'"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
    ],
)
def test_file_that_cannot_be_imported(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "x.py").write_text(text)
    modules = set(sys.modules)
    assert refusal(f"{tmp_path}/x.py:build", tmp_path) == f"importing {tmp_path}/x.py raised {problem}"
    assert set(sys.modules) == modules


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise ValueError('no size\\n  is 7')", "ValueError: no size is 7"),
        ("raise KeyError", "KeyError"),
        ("sys.exit('bye')", "SystemExit: bye"),
    ],
)
def test_function_that_raises(tmp_path: Path, body: str, problem: str) -> None:
    (tmp_path / "x.py").write_text(f"{HEADER}def build(): {body}\n")
    assert refusal(f"{tmp_path}/x.py:build", tmp_path) == f"{tmp_path}/x.py:build raised {problem}"


def test_function_with_parameters(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def build(size): pass\n")
    assert refusal(f"{tmp_path}/x.py:build", tmp_path) == (
        f"{tmp_path}/x.py:build raised TypeError: build() missing 1 required positional argument: 'size'"
    )


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("nn.ReLU()", "ReLU: expected (nn.Module, tuple of tensors)"),
        ("None", "NoneType: expected (nn.Module, tuple of tensors)"),
        ("(nn.ReLU(), 1, 'a')", "(ReLU, int, str): expected (nn.Module, tuple of tensors)"),
        ("(3, (torch.ones(1),))", "a int as the model: expected an nn.Module"),
        ("(nn.ReLU(), torch.ones(1))", "a Tensor as the example inputs: expected a tuple of tensors"),
        ("(nn.ReLU(), (torch.ones(1), 'a'))", "a str as example input 1: expected a tensor"),
    ],
)
def test_wrong_return_value(tmp_path: Path, value: str, problem: str) -> None:
    (tmp_path / "x.py").write_text(f"{HEADER}def build(): return {value}\n")
    assert refusal(f"{tmp_path}/x.py:build", tmp_path) == f"{tmp_path}/x.py:build returned {problem}"

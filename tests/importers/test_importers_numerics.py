"""Imported models against eager torch, on this machine's CPU."""

from __future__ import annotations

from pathlib import Path

import iree.runtime as rt
import numpy as np
import pytest
import torch
from importer_helpers import Holding, build, check, execute
from torch import nn

from felix_mlir.importers import load_model, torch_import

EXAMPLES = Path(__file__).parents[2] / "examples" / "models"


@pytest.mark.parametrize("name", ["mobilenet_block", "resnet_block", "attention_block", "mlp"])
def test_examples(tmp_path: Path, name: str) -> None:
    model = load_model(f"{EXAMPLES / name}.py:build", tmp_path)
    assert model.embed_parameters
    check(model)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("resnet50", (1, 1000)), ("mobilenet_v2", (1, 1000)), ("dcgan", (1, 3, 64, 64)), ("r3d18", (1, 400))],
)
def test_whole_networks_are_imported(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    model = load_model(f"{EXAMPLES / name}.py:build", tmp_path)
    assert model.reference is not None
    (output,) = model.reference
    assert output.shape == shape
    assert 0.01 < np.abs(output).max() < 10, "nothing of the input is left, or it grows from layer to layer"


def test_weights_beside_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_import, "EMBED_LIMIT_BYTES", 0)
    model = load_model(f"{EXAMPLES / 'mlp'}.py:build", tmp_path)
    assert not model.embed_parameters
    assert model.compile_flags() == ()
    check(model)
    assert model.inputs is not None
    with pytest.raises(ValueError, match="io_parameters"):
        execute(build(model), model.inputs, None)


@pytest.mark.parametrize("limit", [4 * 128 - 1, 4 * 128])
def test_embedding_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(torch_import, "EMBED_LIMIT_BYTES", limit)
    model = load_model(Holding(torch.ones(128), torch.add), tmp_path, (torch.ones(128),))
    assert model.embed_parameters == (limit == 4 * 128)


def test_weights_are_not_text(tmp_path: Path) -> None:
    small = load_model(nn.Linear(100, 100), tmp_path, (torch.randn(1, 100),))
    small_size = small.mlir.stat().st_size
    large = load_model(nn.Linear(1000, 1000), tmp_path, (torch.randn(1, 1000),))
    assert large.parameters is not None
    assert large.parameters.stat().st_size > 4_000_000
    assert large.mlir.stat().st_size < small_size + 200  # The dimensions have one digit more.


def stored(path: Path) -> dict[str, int]:
    index = rt.ParameterIndex()
    index.load(str(path))
    return {index[i].key: index[i].length for i in range(len(index))}


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(64, 32)
            self.project = nn.Linear(32, 64, bias=False)
            self.project.weight = self.embed.weight
            self.register_buffer("alias", self.embed.weight.detach())  # The same memory, another tensor.

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.project(self.embed(tokens)) + self.alias.sum()

    model = load_model(Tied(), tmp_path, (torch.randint(0, 64, (2, 5)),))
    assert model.parameters is not None
    assert list(stored(model.parameters).values()) == [64 * 32 * 4]
    check(model)


def test_views_of_one_memory_are_told_apart(tmp_path: Path) -> None:
    base = torch.randn(20, 20)

    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whole", base)
            self.register_buffer("transposed", base.t())
            self.register_buffer("part", base[:10])
            self.register_buffer("bits", base.view(torch.int32))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x @ self.whole, x @ self.transposed, x[:, :10] @ self.part, x + (self.bits % 7).sum()

    model = load_model(Views(), tmp_path, (torch.randn(3, 20),))
    assert model.parameters is not None
    assert len(stored(model.parameters)) == 4
    check(model)


@pytest.mark.parametrize("persistent", [True, False])
def test_buffers(tmp_path: Path, persistent: bool) -> None:
    model = load_model(Holding(torch.randn(200), torch.mul, persistent), tmp_path, (torch.randn(200),))
    assert model.parameters is not None
    assert stored(model.parameters) == {"held": 800}
    check(model)


def test_tensors_made_in_forward(tmp_path: Path) -> None:
    table = list(range(1, 301))
    module = Holding(torch.randn(1), lambda held, x: x * torch.tensor(table) + held)
    model = load_model(module, tmp_path, (torch.randn(300),))
    assert model.parameters is not None
    assert stored(model.parameters) == {".constant0": 2400}
    check(model)


FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def values(dtype: torch.dtype, count: int) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(count) > 0.5
    if dtype.is_floating_point:
        return (3 * torch.randn(count, dtype=torch.float64)).to(dtype)
    limits = torch.iinfo(dtype)
    return torch.randint(max(limits.min, -(2**40)), min(limits.max, 2**40), (count,)).to(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool], ids=str)
def test_dtypes(tmp_path: Path, dtype: torch.dtype) -> None:
    """Weights stored and inline, of 0 to 2 dimensions, as results unchanged; an input of the type goes in."""
    torch.manual_seed(1)

    class Weights(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("large", values(dtype, 640).reshape(32, 20).t())
            self.register_buffer("few", values(dtype, 3))
            self.register_buffer("one", torch.tensor(100).to(dtype))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x, self.large, self.few, self.one, x.to(torch.float32) * self.large.to(torch.float32)

    model = load_model(Weights(), tmp_path, (values(dtype, 32),))
    assert model.inputs is not None
    assert model.inputs[0].dtype.name == str(dtype).removeprefix("torch.")
    check(model, tolerance=0)


def test_complex_weights_stay_beside_the_program(tmp_path: Path) -> None:
    rotation = torch.polar(torch.ones(300), torch.linspace(0, 3, 300))
    model = load_model(Holding(rotation, lambda held, x: (held * x).real), tmp_path, (torch.randn(300),))
    assert not model.embed_parameters
    check(model)


def test_results_are_flattened_in_order(tmp_path: Path) -> None:
    module = Holding(torch.ones(1), lambda held, x: {"b": x + held, "a": (x * 2, [x * 3, x])})
    model = load_model(module, tmp_path, (torch.randn(4),))
    assert model.parameters is None
    assert model.reference is not None and len(model.reference) == 4
    check(model)


def test_attention_with_infinities(tmp_path: Path) -> None:
    module = Holding(
        torch.randn(1, 2, 8, 16),
        lambda held, x: nn.functional.scaled_dot_product_attention(held, held * x, held, is_causal=True),
    )
    check(load_model(module, tmp_path, (torch.randn(8, 16),)))

"""Sources that are nn.Module instances: what is refused, and what is left as it was."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from importer_helpers import Holding
from torch import nn

from felix_mlir.errors import RequestError
from felix_mlir.importers import load_model, torch_import


class Counting(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls


def scaled(function: object) -> Holding:
    return Holding(torch.ones(4, 4), function)  # type: ignore[arg-type]


SQUARE = torch.ones(4, 4)
REFUSED = {
    "not tensors": (
        nn.ReLU(),
        3,
        "load_model was given a int as the example inputs: expected a tuple of tensors",
    ),
    "no inputs": (nn.ReLU(), None, "load_model was given a NoneType as the example inputs: expected a tuple"),
    "no module": (3, (SQUARE,), "load_model was given a int as the model: expected an nn.Module"),
    "shape mismatch": (
        nn.Linear(3, 3),
        (SQUARE,),
        "torch.export cannot export Linear: a and b must have same reduction dim, but got [4, 4] X [3, 3].",
    ),
    "branch on data": (
        scaled(lambda held, x: x if x.sum() > 0 else held),
        (SQUARE,),
        "torch.export cannot export Holding: Could not guard on data-dependent expression",
    ),
    "unknown operator": (
        scaled(lambda held, x: torch.linalg.svd(x)),
        (SQUARE,),
        "torch-mlir cannot lower Holding: ",
    ),
    "higher-order operator": (
        scaled(lambda held, x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))),
        (SQUARE,),
        "torch-mlir cannot import Holding: Higher-order operation 'cond' not implemented",
    ),
    "writes to a buffer": (Counting(), (SQUARE,), "Counting writes to calls: return the new value instead"),
    "writes to an input": (
        scaled(lambda held, x: x.add_(held)),
        (SQUARE,),
        "Holding writes to inputs_0: return the new value instead",
    ),
    "returns None": (
        scaled(lambda held, x: (x, None)),
        (SQUARE,),
        "Holding returns something other than a tensor at 1: return tensors only",
    ),
    "no data": (
        nn.Linear(4, 4, device="meta"),
        (torch.ones(4, 4, device="meta"),),
        "Linear fails on its example inputs: Cannot copy out of meta tensor; no data!",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path: Path, case: str) -> None:
    module, inputs, expected = REFUSED[case]
    with pytest.raises(RequestError) as caught:
        load_model(module, tmp_path, inputs)  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith(expected)
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_operator_is_named_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"importer_helpers\.py.*error: .*torch\.aten\._linalg_svd"):
        load_model(scaled(lambda held, x: torch.linalg.svd(x)), tmp_path, (SQUARE,))


def test_lowering_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_import, "LOWERING_LIMIT_S", 1.0)
    with pytest.raises(RequestError, match=r"^torch-mlir cannot lower Holding: no result after 1 s$"):
        load_model(scaled(lambda held, x: x[x > 0]), tmp_path, (SQUARE,))
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_earlier_files(tmp_path: Path) -> None:
    model = load_model(scaled(lambda held, x: x @ held), tmp_path, (SQUARE,))
    before = model.mlir.read_bytes()
    with pytest.raises(RequestError):
        load_model(scaled(lambda held, x: torch.linalg.svd(x)), tmp_path, (SQUARE,))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


NOISY = """
import sys, torch
from pathlib import Path
from felix_mlir.errors import RequestError
from felix_mlir.importers import load_model

class Branching(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x

load_model(torch.nn.LSTM(8, 8), Path(sys.argv[1]), (torch.randn(3, 2, 8),))
for module in Branching(), torch.nn.Linear(3, 3):
    try:
        load_model(module, Path(sys.argv[1]), (torch.ones(2, 2),))
    except RequestError:
        print("refused")
"""


def test_nothing_is_printed(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", NOISY, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (child.stdout, child.stderr, child.returncode) == ("refused\nrefused\n", "", 0)


def test_global_state_is_restored(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    def state() -> list[object]:
        return [list(warnings.filters), logging.root.manager.disable, sys.stderr, torch.is_grad_enabled()]

    logging.disable(logging.DEBUG)
    try:
        before = state()
        load_model(nn.LSTM(8, 8), tmp_path, (torch.randn(3, 2, 8),))
        assert state() == before
        with pytest.raises(RequestError):
            load_model(nn.Linear(3, 3), tmp_path, (torch.ones(1, 2),))
        assert state() == before
    finally:
        logging.disable(logging.NOTSET)
    assert recwarn.list == []


def test_module_and_inputs_are_left_as_they_were(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5), nn.ReLU())
    module.register_buffer("scratch", torch.ones(300), persistent=False)
    module.train()
    module[1].eval()
    module[0].weight.requires_grad_(False)
    x = torch.randn(2, 3, 8, 8, requires_grad=True)

    def snapshot() -> list[object]:
        tensors = [*module.named_parameters(), *module.named_buffers(), ("x", x)]
        return [
            [(name, id(tensor), tensor.requires_grad, tensor.grad, tensor._version) for name, tensor in tensors],
            [(part.training, set(part._non_persistent_buffers_set), set(vars(part))) for part in module.modules()],
        ]

    values = [tensor.detach().clone() for tensor in [*module.parameters(), *module.buffers(), x]]
    before = snapshot()
    model = load_model(module, tmp_path, (x,))
    assert snapshot() == before
    for tensor, value in zip([*module.parameters(), *module.buffers(), x], values, strict=True):
        assert torch.equal(tensor, value)
    # Evaluated, so neither dropout nor the batch's own statistics show.
    assert model.reference is not None
    expected = torch.relu(module[1](module[0](x))).detach().numpy()
    assert abs(model.reference[0] - expected).max() < 1e-6


def test_inputs_are_copied(tmp_path: Path) -> None:
    x = torch.ones(2)
    model = load_model(nn.Identity(), tmp_path, (x,))
    x.zero_()
    assert model.inputs is not None and model.reference is not None
    assert model.inputs[0].tolist() == model.reference[0].tolist() == [1, 1]

"""torch tensors as bytes and as NumPy arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from felix_mlir.importers.tensors import tensor_bytes, tensor_to_numpy

WAVE = torch.polar(torch.ones(6), torch.linspace(0, 3, 6))
TENSORS = {
    "row-major": torch.randn(3, 4),
    "transposed": torch.randn(3, 4).t(),
    "every other": torch.arange(10)[::2],
    "one of a strided view": torch.arange(10)[::5][1:2],
    "expanded": torch.full((1,), 3.5).expand(4, 2),
    "no dimension": torch.tensor(-7, dtype=torch.int16),
    "no elements": torch.ones(0, 3),
    "conjugate": WAVE.conj(),
    "negative view": WAVE.conj().imag,
    "requires a gradient": torch.ones(3, requires_grad=True),
}


@pytest.mark.parametrize("case", TENSORS)
def test_layouts(case: str) -> None:
    tensor = TENSORS[case]
    expected = np.array(tensor.tolist(), dtype=str(tensor.dtype).removeprefix("torch.")).reshape(tensor.shape)
    array = tensor_to_numpy(tensor)
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array, expected)
    assert tensor_bytes(tensor).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_types_numpy_lacks(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[1.5, -3.0], [0.0, 0.25]]).to(dtype)
    array = tensor_to_numpy(tensor)
    assert array.dtype.name == str(dtype).removeprefix("torch.")
    np.testing.assert_array_equal(array.astype(np.float32), tensor.to(torch.float32).numpy())


def test_bytes_share_memory_and_arrays_do_not() -> None:
    tensor = torch.ones(2, dtype=torch.uint8)
    shared, copied = tensor_bytes(tensor), tensor_to_numpy(tensor)
    tensor.fill_(5)
    assert (shared.tolist(), copied.tolist()) == ([5, 5], [1, 1])

"""torch tensors as bytes and as NumPy arrays, for every dtype (torch itself converts no bf16)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch


def tensor_bytes(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor's elements in row-major order as a flat uint8 array.

    It shares memory with `tensor` where that is already row-major on the CPU.
    """
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
    if flat.stride(0) != 1:  # Not `is_contiguous`, which one element is at any stride.
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy()


def tensor_to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Return a copy of a tensor as an array of the same shape and dtype (bf16 and f8 from ml_dtypes)."""
    name = str(tensor.dtype).removeprefix("torch.")
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    return tensor_bytes(tensor).view(dtype).reshape(tuple(tensor.shape)).copy()

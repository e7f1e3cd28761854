"""What a PyTorch model is made of, checked before torch.export sees it."""

from __future__ import annotations

import torch
from torch import nn

from felix_mlir.errors import RequestError


def check_arguments(given: str, module: object, inputs: object) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return `module` and `inputs` as an nn.Module and a tuple of tensors.

    Raises RequestError when they are not; its message starts with `given`, as in "models.py:build returned".
    """
    if not isinstance(module, nn.Module):
        raise RequestError(f"{given} a {type(module).__name__} as the model: expected an nn.Module")
    if not isinstance(inputs, tuple | list):
        kind = type(inputs).__name__
        raise RequestError(f"{given} a {kind} as the example inputs: expected a tuple of tensors")
    tensors: list[torch.Tensor] = []
    for index, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            raise RequestError(f"{given} a {type(value).__name__} as example input {index}: expected a tensor")
        tensors.append(value)
    return module, tuple(tensors)

"""A three-layer perceptron on a batch of 64 rows in half precision, random weights."""

import torch
from torch import nn


def build() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return the perceptron (512 to 1024 to 1024 to 256) and one 64x512 input."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(512, 1024),
        nn.ReLU(),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, 256),
        nn.Softmax(dim=-1),
    )
    return model.half().eval(), (torch.randn(64, 512, dtype=torch.float16),)

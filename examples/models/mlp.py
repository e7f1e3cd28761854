"""A three-layer perceptron on a batch of 50 rows, random weights."""

import torch
from torch import nn


def build() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return the perceptron (256 to 512 to 512 to 100) and one 50x256 input."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(256, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 100),
        nn.Softmax(dim=-1),
    )
    return model.eval(), (torch.randn(50, 256),)

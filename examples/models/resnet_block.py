"""One ResNet-50 bottleneck with a strided projection shortcut, batch 1, random weights."""

import torch
from torch import nn


class Bottleneck(nn.Module):
    """1x1 reduce, 3x3, 1x1 expand, with a projected shortcut (He et al. 2015, figure 5)."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels_out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, channels_out, 1, bias=False),
            nn.BatchNorm2d(channels_out),
        )
        self.shortcut = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
            nn.BatchNorm2d(channels_out),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def build() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return the bottleneck and one 1x64x56x56 input."""
    torch.manual_seed(0)
    return Bottleneck(64, 64, 2).eval(), (torch.randn(1, 64, 56, 56),)

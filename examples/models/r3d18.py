"""R3D-18 for clips of 16 frames of 112x112, batch 1, random weights (Tran et al. 2018)."""

import torch
from torch import nn


class BasicBlock(nn.Module):
    """Two 3x3x3 convolutions, with a shortcut that is projected where the shape changes (section 3.2)."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv3d(channels_in, channels_out, 3, stride, padding=1, bias=False),
            nn.BatchNorm3d(channels_out),
            nn.ReLU(),
            nn.Conv3d(channels_out, channels_out, 3, padding=1, bias=False),
            nn.BatchNorm3d(channels_out),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv3d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm3d(channels_out)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def r3d18() -> nn.Sequential:
    """Return the layers of table 1's R3D column."""
    layers: list[nn.Module] = [
        nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), padding=(1, 3, 3), bias=False),
        nn.BatchNorm3d(64),
        nn.ReLU(),
    ]
    channels = 64
    for channels_out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [BasicBlock(channels, channels_out, stride), BasicBlock(channels_out, channels_out, 1)]
        channels = channels_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(channels, 400))


def build() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return R3D-18 and one 1x3x16x112x112 input."""
    torch.manual_seed(0)
    return r3d18().eval(), (torch.randn(1, 3, 16, 112, 112),)

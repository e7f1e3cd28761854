"""ResNet-50 for 224x224 images, batch 1, random weights (He et al. 2015, with v1.5's strides)."""

import torch
from torch import nn


def normalized_conv(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution without bias that keeps the image's size (over `stride`), then batch normalization."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(channels_out),
    )


class Bottleneck(nn.Module):
    """1x1 reduce, 3x3, 1x1 expand, with a shortcut that is projected where the shape changes (figure 5)."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels_out = 4 * width
        self.body = nn.Sequential(
            normalized_conv(channels_in, width, 1),
            nn.ReLU(),
            normalized_conv(width, width, 3, stride),
            nn.ReLU(),
            normalized_conv(width, channels_out, 1),
        )
        same_shape = stride == 1 and channels_in == channels_out
        self.shortcut = nn.Identity() if same_shape else normalized_conv(channels_in, channels_out, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet50() -> nn.Sequential:
    """Return the layers of table 1's 50-layer column."""
    layers: list[nn.Module] = [normalized_conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(channels, width, stride if block == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def build() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return ResNet-50 and one 1x3x224x224 input."""
    torch.manual_seed(0)
    return resnet50().eval(), (torch.randn(1, 3, 224, 224),)

"""MobileNet-v2 of width 1.0 for 224x224 images, batch 1, random weights (Sandler et al. 2018)."""

import torch
from torch import nn


def normalized_conv(
    channels_in: int, channels_out: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Return a convolution without bias that keeps the image's size (over `stride`), then batch normalization."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(channels_out),
    )


class InvertedResidual(nn.Module):
    """Pointwise expansion, depthwise 3x3, pointwise projection (section 3.3)."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = channels_in * expansion
        self.has_skip = stride == 1 and channels_in == channels_out
        expand = [normalized_conv(channels_in, hidden, 1), nn.ReLU6()] if expansion > 1 else []
        self.layers = nn.Sequential(
            *expand,
            normalized_conv(hidden, hidden, 3, stride, groups=hidden),
            nn.ReLU6(),
            normalized_conv(hidden, channels_out, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        return x + y if self.has_skip else y


def mobilenet_v2() -> nn.Sequential:
    """Return the layers of table 2."""
    layers: list[nn.Module] = [normalized_conv(3, 32, 3, 2), nn.ReLU6()]
    channels = 32
    for expansion, channels_out, blocks, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for block in range(blocks):
            layers.append(InvertedResidual(channels, channels_out, stride if block == 0 else 1, expansion))
            channels = channels_out
    layers += [normalized_conv(channels, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(1280, 1000))
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):  # With torch's own choice of weights nothing of the image would be left.
            nn.init.kaiming_normal_(layer.weight)
    return model


def build() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return MobileNet-v2 and one 1x3x224x224 input."""
    torch.manual_seed(0)
    return mobilenet_v2().eval(), (torch.randn(1, 3, 224, 224),)

"""Two MobileNet-v2 inverted-residual blocks at 56x56, batch 1, random weights."""

import torch
from torch import nn


class InvertedResidual(nn.Module):
    """Pointwise expansion, depthwise 3x3, pointwise projection (Sandler et al. 2018, section 3.3)."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, expansion: int = 6) -> None:
        super().__init__()
        hidden = channels_in * expansion
        self.has_skip = stride == 1 and channels_in == channels_out
        self.layers = nn.Sequential(
            nn.Conv2d(channels_in, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, stride, padding=1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, channels_out, 1, bias=False),
            nn.BatchNorm2d(channels_out),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        return x + y if self.has_skip else y


def build() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return the two blocks and one 1x24x56x56 input."""
    torch.manual_seed(0)
    model = nn.Sequential(InvertedResidual(24, 24, 1), InvertedResidual(24, 32, 2)).eval()
    return model, (torch.randn(1, 24, 56, 56),)

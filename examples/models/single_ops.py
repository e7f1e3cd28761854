"""Single ops whose default code is slow for their structure, as torch has them, random weights."""

import torch
from torch import nn


def conv3d() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return a 3x3x3 convolution of R3D-18's first stage (Tran et al. 2018), 64 to 64 channels."""
    torch.manual_seed(0)
    return nn.Conv3d(64, 64, 3, padding=1, bias=False).eval(), (torch.randn(1, 64, 16, 56, 56),)


def strided_1x1() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return a strided projection of ResNet-50 (He et al. 2015), 256 to 512 channels."""
    torch.manual_seed(0)
    return nn.Conv2d(256, 512, 1, 2, bias=False).eval(), (torch.randn(1, 256, 56, 56),)


def depthwise() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return a depthwise convolution of MobileNet-v2 (Sandler et al. 2018), 144 channels."""
    torch.manual_seed(0)
    return nn.Conv2d(144, 144, 3, padding=1, groups=144, bias=False).eval(), (torch.randn(1, 144, 56, 56),)


def matmul() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return the first feed-forward layer of a ViT-B/32 (Dosovitskiy et al. 2021) with constant weights."""
    torch.manual_seed(0)
    return nn.Linear(768, 3072, bias=False).eval(), (torch.randn(50, 768),)

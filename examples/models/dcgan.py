"""The DCGAN generator of 64x64 images, batch 1, random weights (Radford et al. 2015, figure 1)."""

import torch
from torch import nn

NOISE = 100
WIDTH = 64


def generator() -> nn.Sequential:
    """Return five transposed convolutions, the first from a single pixel, each of the others doubling the size."""
    layers: list[nn.Module] = []
    channels = NOISE
    for channels_out, stride, padding in ((8 * WIDTH, 1, 0), (4 * WIDTH, 2, 1), (2 * WIDTH, 2, 1), (WIDTH, 2, 1)):
        layers += [
            nn.ConvTranspose2d(channels, channels_out, 4, stride, padding, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(),
        ]
        channels = channels_out
    model = nn.Sequential(*layers, nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False), nn.Tanh())
    for layer in model:
        if isinstance(layer, nn.ConvTranspose2d):  # With torch's own choice of weights the image would be black.
            nn.init.kaiming_normal_(layer.weight)
    return model


def build() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return the generator and one 1x100x1x1 input."""
    torch.manual_seed(0)
    return generator().eval(), (torch.randn(1, NOISE, 1, 1),)

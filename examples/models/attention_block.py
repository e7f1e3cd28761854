"""One pre-norm transformer encoder block, 50 tokens of width 768, 12 heads (ViT-B/32 at 224), random weights."""

import torch
from torch import nn


class AttentionBlock(nn.Module):
    """Layer norm, multi-head self-attention, layer norm, GELU MLP (Dosovitskiy et al. 2021, figure 1)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5
        mixed = torch.softmax(scores, dim=-1) @ value
        return self.project(mixed.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


def build() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """Return the block and one 1x50x768 input."""
    torch.manual_seed(0)
    return AttentionBlock(768, 12).eval(), (torch.randn(1, 50, 768),)

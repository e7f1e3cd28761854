"""The residual networks: an ensemble evaluated as one batch of matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from typing_extensions import override

from felix_mlir.cost.inputs import DISPATCH_INPUTS, LOOP_INPUTS, OPERAND_INPUTS, STAGE_INPUTS, NestInputs

MEMBERS = 8
_OPERAND_WIDTH = 32
_WIDTH = HIDDEN = 64
# Standardised inputs beyond this were hardly seen in training: what is out there must not be extrapolated.
_CLIP = 4.0


class _Linear(nn.Module):
    """A linear layer per member: [members or 1, ..., in] to [members, ..., out]."""

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = math.sqrt(3.0 / inputs)
        self.weight = nn.Parameter((torch.rand(MEMBERS, inputs, outputs, generator=generator) * 2 - 1) * bound)
        self.bias = nn.Parameter(torch.zeros(MEMBERS, 1, outputs))

    @override
    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(x.shape[0], -1, x.shape[-1]).expand(MEMBERS, -1, -1)
        return torch.baddbmm(self.bias, rows, self.weight).reshape(MEMBERS, *x.shape[1:-1], -1)


class _Standardise(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.zeros(size))
        self.scale = nn.Buffer(torch.ones(size))

    def fit(self, rows: Tensor) -> None:
        """Take mean and spread from the rows [n, size]."""
        self.mean.copy_(rows.mean(dim=0))
        self.scale.copy_(rows.std(dim=0).clamp(min=0.1))

    @override
    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) / self.scale).clamp(-_CLIP, _CLIP)


class Ensemble(nn.Module):
    """Predicts the log of latency over bound: operands and loops are summed into their stage, stages into their nest.

    The output layer starts at zero, so that an untrained ensemble is the bound itself.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        operand, loop, stage, dispatch = OPERAND_INPUTS, LOOP_INPUTS, STAGE_INPUTS, DISPATCH_INPUTS
        generator = torch.Generator().manual_seed(seed)
        self.of_operand = _Standardise(operand)
        self.of_loop = _Standardise(loop)
        self.of_stage = _Standardise(stage)
        self.of_dispatch = _Standardise(dispatch)
        self.operand = nn.Sequential(
            _Linear(operand, _WIDTH, generator), nn.GELU(), _Linear(_WIDTH, _OPERAND_WIDTH, generator)
        )
        self.loop = nn.Sequential(
            _Linear(loop, _WIDTH, generator), nn.GELU(), _Linear(_WIDTH, _OPERAND_WIDTH, generator)
        )
        self.stage = nn.Sequential(
            _Linear(stage + 2 * _OPERAND_WIDTH, _WIDTH, generator),
            nn.GELU(),
            _Linear(_WIDTH, _WIDTH, generator),
            nn.GELU(),
        )
        self.head = nn.Sequential(_Linear(_WIDTH + dispatch, _WIDTH, generator), nn.GELU())
        self.output = _Linear(_WIDTH, 1, generator)
        nn.init.zeros_(self.output.weight)

    def fit_scales(self, inputs: NestInputs) -> None:
        """Standardise by the spread of these inputs."""
        self.of_operand.fit(inputs.operand[inputs.is_operand])
        self.of_loop.fit(inputs.loop[inputs.is_loop])
        self.of_stage.fit(inputs.stage[inputs.is_stage])
        self.of_dispatch.fit(inputs.dispatch)

    @override
    def forward(self, inputs: NestInputs) -> Tensor:
        """Return [members, n]."""
        return self.output(self._hidden(inputs))[..., 0]

    def basis(self, inputs: NestInputs) -> Tensor:
        """Return what the output layer weighs, a one for its bias last: [members, n, HIDDEN + 1]."""
        hidden = self._hidden(inputs)
        return torch.cat([hidden, torch.ones_like(hidden[..., :1])], dim=-1)

    def _hidden(self, inputs: NestInputs) -> Tensor:
        operands = _summed(self.operand, self.of_operand, inputs.operand, inputs.is_operand)
        loops = _summed(self.loop, self.of_loop, inputs.loop, inputs.is_loop)
        stage = self.of_stage(inputs.stage)[None].expand(MEMBERS, -1, -1, -1)
        whole = torch.cat([stage, operands, loops], dim=-1)[:, inputs.is_stage]
        nest = _scattered(self.stage(whole), inputs.is_stage)
        dispatch = self.of_dispatch(inputs.dispatch)[None].expand(MEMBERS, -1, -1)
        return self.head(torch.cat([nest, dispatch], dim=-1))


def _summed(layers: nn.Module, standardise: nn.Module, parts: Tensor, exists: Tensor) -> Tensor:
    """Encode the parts [..., k, size] that exist and add them up: [members, ..., width]."""
    return _scattered(layers(standardise(parts[exists])[None]), exists)


def _scattered(rows: Tensor, exists: Tensor) -> Tensor:
    """Add up rows [members, existing, width] along the last axis of `exists`: [members, *exists.shape[:-1], width]."""
    whole = exists.shape[:-1]
    owner = exists.reshape(-1, exists.shape[-1]).nonzero()[:, 0]
    sums = rows.new_zeros(MEMBERS, whole.numel(), rows.shape[-1]).index_add(1, owner, rows)
    return sums.reshape(MEMBERS, *whole, rows.shape[-1])

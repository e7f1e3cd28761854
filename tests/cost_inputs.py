"""Model inputs made up, for tests of what learns from them."""

from __future__ import annotations

import torch

from felix_mlir.cost import NestInputs
from felix_mlir.cost.inputs import DISPATCH_INPUTS, LOOP_INPUTS, OPERAND_INPUTS, STAGE_INPUTS, TERMS


def made_up_inputs(count: int, seed: int, stages: int = 2, operands: int = 3, loops: int = 3) -> NestInputs:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(count, *shape, generator=generator)

    return NestInputs(
        stage=normal(stages, STAGE_INPUTS),
        operand=normal(stages, operands, OPERAND_INPUTS),
        loop=normal(stages, loops, LOOP_INPUTS),
        dispatch=normal(DISPATCH_INPUTS),
        is_stage=torch.ones(count, stages, dtype=torch.bool),
        is_operand=torch.ones(count, stages, operands, dtype=torch.bool),
        is_loop=torch.ones(count, stages, loops, dtype=torch.bool),
        log_bound=normal() - 8,
        terms=torch.exp(normal(stages, len(TERMS))),
    )

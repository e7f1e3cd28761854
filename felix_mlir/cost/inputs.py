"""What the cost model sees of a schedule: an analytic bound on its latency and a few dozen logarithms per stage.

Sizes that grow with the problem are given relative to its work (bytes moved per byte accessed, say), so that what is
learned on one op holds for others; those that meet a capacity of the machine stay absolute.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from felix_mlir.cost.gpu_bound import GpuBound
from felix_mlir.cost.layout import (
    DISPATCH,
    LOOP_LEVELS,
    OPERAND,
    OPERAND_LEVELS,
    SLOTS,
    STAGE,
    STAGE_CACHES,
    STAGE_LEVELS,
    Layout,
)
from felix_mlir.cost.machine import AnyMachine, GpuMachine, Machine
from felix_mlir.schedule import TileLevel

TERMS = ("compute", "l1", "l2", "l3", "memory")
# How many numbers describe an operand, a loop, a stage and a dispatch.
OPERAND_INPUTS, LOOP_INPUTS, STAGE_INPUTS, DISPATCH_INPUTS = 42, 28, 61, 6
_TINY = 1e-6
_SOME = 0.01
_CUT_TILES = STAGE_LEVELS.index("cut_tiles")
_SIZE, _CUT = LOOP_LEVELS.index("size"), LOOP_LEVELS.index("cut")
_REGISTERS = SLOTS.index(TileLevel.VECTOR_COMMON_PARALLEL.value)


@dataclass(frozen=True)
class NestInputs:
    """A batch of n schedules.

    `stage` [n, stages, STAGE_INPUTS], `operand` [n, stages, operands, OPERAND_INPUTS], `loop` [n, stages, loops,
    LOOP_INPUTS], `dispatch` [n, DISPATCH_INPUTS]. `is_stage` [n, stages], `is_operand` [n, stages, operands] and
    `is_loop` [n, stages, loops] say where there is something. `log_bound` [n] is the log of a lower bound on the
    latency in seconds; `terms` [n, stages, len(TERMS)] the seconds each stage would take if only that resource
    counted, on as many cores as the schedule keeps busy.
    """

    stage: Tensor
    operand: Tensor
    loop: Tensor
    dispatch: Tensor
    is_stage: Tensor
    is_operand: Tensor
    is_loop: Tensor
    log_bound: Tensor
    terms: Tensor

    def __len__(self) -> int:
        return len(self.log_bound)

    def select(self, rows: Tensor) -> NestInputs:
        """The schedules of some rows, in their order."""
        return NestInputs(*(getattr(self, field.name)[rows] for field in fields(self)))


def nest_inputs(layout: Layout, values: Tensor, machine: AnyMachine, gpu: GpuBound | None = None) -> NestInputs:
    """Arrange the features [n, features] of schedules of one loop structure; `gpu` for those of a GPU template."""
    gather = _Gather(values)
    stage, stage_levels = gather(layout.stage), gather(layout.stage_levels)
    operand, operand_levels = gather(layout.operand), gather(layout.operand_levels)
    dispatch = dict(zip(DISPATCH, gather(layout.dispatch).unbind(-1), strict=True))
    named = dict(zip((*STAGE, *STAGE_CACHES), stage.unbind(-1), strict=True))
    levels = dict(zip(STAGE_LEVELS, stage_levels.unbind(-1), strict=True))
    own = dict(zip(OPERAND, operand.unbind(-1), strict=True))
    at = dict(zip(OPERAND_LEVELS, operand_levels.unbind(-1), strict=True))
    lane_use = gather(layout.loop)[..., 0]
    sizes = gather(layout.loop_levels[..., _SIZE])
    # The whole op is cut nowhere and has no such features.
    cut = gather(layout.loop_levels[..., _CUT], missing=0.0).clamp(min=0.0)[..., 1:]
    cut_tiles = gather(layout.stage_levels[..., _CUT_TILES], missing=0.0).clamp(min=0.0)
    cut_tiles = (cut_tiles / levels["tiles"])[..., 1:]
    is_loop = layout.is_loop.to(values.dtype)
    exists = layout.is_operand.to(values.dtype)

    if isinstance(machine, GpuMachine):
        assert gpu is not None
        terms = gpu.terms(values, machine, layout.operations.sum(dim=-1), layout.elements)
    else:
        # Whatever does not depend on the innermost reduction stays in registers there.
        registers = (at["traffic"][..., _REGISTERS] * exists).sum(dim=-1)
        terms = _terms(layout, named, registers, (lane_use * is_loop).amax(dim=-1), levels, dispatch, machine)
    slowest = terms.amax(dim=-1)
    bound = machine.rates.launch_s + slowest.sum(dim=-1) * dispatch["imbalance"]

    iterations = named["iterations"]
    accessed = (own["accessed"] * exists).sum(dim=-1)
    stage_inputs = [
        _log(named["vector_operations"] / iterations),
        _log(named["lane_use"]),
        torch.log1p(named["code_size"]),
        torch.log1p(named["accumulators"]),
        torch.log1p(named["registers"]),
        _log(named["of_registers"]),
        _log(iterations / dispatch["workgroups"][:, None]),
        *(_log(named[cache] / accessed) for cache in STAGE_CACHES),
        *torch.log1p(layout.operations).to(values.dtype).expand(len(values), -1, -1).unbind(-1),
        _log(layout.widest).to(values.dtype).expand(len(values), -1),
        *_log(terms / slowest[..., None]).unbind(-1),
        _log(slowest / slowest.sum(dim=-1, keepdim=True)),
        *torch.log1p(levels["working_set"]).unbind(-1),
        *_log(levels["of_l1"]).unbind(-1),
        *_log(levels["of_l2"]).unbind(-1),
        *_log(levels["padding"]).unbind(-1),
        *cut_tiles.unbind(-1),
        *_whether(cut_tiles).unbind(-1),
        *_log(iterations[..., None] / levels["tiles"]).unbind(-1),
    ]
    roles = layout.roles.to(values.dtype).expand(len(values), -1, -1, -1)
    operand_inputs = [
        *roles[..., :-1].unbind(-1),
        torch.log2(roles[..., -1].clamp(min=1.0)),
        _log(own["accessed"] / own["unique"]),
        *(torch.log1p(own[name].clamp(min=0.0)) for name in OPERAND[1:]),
        *torch.log1p(at["footprint"]).unbind(-1),
        *_log(at["traffic"] / own["accessed"][..., None]).unbind(-1),
        *_log(at["lines"] * machine.limits.line_bytes / at["footprint"]).unbind(-1),
        *torch.log1p(at["run"]).unbind(-1),
        *torch.log1p(at["reuse"]).unbind(-1),
    ]
    lanes = (machine.limits.vector_bytes / layout.widest).clamp(min=1.0).to(values.dtype)[:, None]
    loop_inputs = [
        *layout.loop_roles.to(values.dtype).expand(len(values), -1, -1, -1).unbind(-1),
        _log(lane_use),
        *torch.log2(sizes.clamp(min=1.0)).unbind(-1),
        _log(sizes[..., -1] / lanes),
        *cut.unbind(-1),
        *_whether(cut).unbind(-1),
    ]
    dispatch_inputs = [
        *(_log(dispatch[name]) for name in ("workgroups", "waves", "core_use", "imbalance")),
        torch.log1p(dispatch["allocated"]),
        _log(bound * 1e6),
    ]
    return NestInputs(
        stage=torch.stack(stage_inputs, dim=-1),
        operand=torch.stack(operand_inputs, dim=-1) * exists[..., None],
        loop=torch.stack(loop_inputs, dim=-1) * is_loop[..., None],
        dispatch=torch.stack(dispatch_inputs, dim=-1),
        is_stage=torch.ones(stage.shape[:2], dtype=torch.bool),
        is_operand=layout.is_operand.expand(len(values), -1, -1),
        is_loop=layout.is_loop.expand(len(values), -1, -1),
        log_bound=torch.log(bound),
        terms=terms,
    )


def _terms(
    layout: Layout,
    named: dict[str, Tensor],
    register_traffic: Tensor,
    lane_use: Tensor,
    levels: dict[str, Tensor],
    dispatch: dict[str, Tensor],
    machine: Machine,
) -> Tensor:
    """Seconds per stage and resource, [n, stages, len(TERMS)].

    A lower bound: vectors run along the loop that fills them best, and a dispatch that fits a cache finds its operands
    there, since whatever ran before it (itself, when it is timed) left them.
    """
    rates, limits = machine.rates, machine.limits
    # A narrow type is at worst computed as a wider one; what is slower is one library's kernel, not the machine.
    flops = torch.tensor([max(rates.flops[element], rates.flops["f32"]) for element in layout.elements])
    operations = layout.operations.sum(dim=-1).clamp(min=1.0) * named["iterations"]
    busy = (limits.cores * dispatch["core_use"])[:, None]
    whole = levels["working_set"][..., 0].sum(dim=-1, keepdim=True)
    from_l2, from_l3, from_memory = (
        named[f"{cache}/traffic"] * (whole > size)
        for cache, size in (("l1", limits.l1_bytes), ("l2", limits.l2_bytes), ("l3", limits.l3_bytes))
    )
    seconds = [
        operations / (lane_use * flops),
        register_traffic / rates.l1_bytes_s,
        from_l2 / rates.l2_bytes_s,
        from_l3 / rates.l3_bytes_s,
        torch.maximum(from_memory / rates.memory_bytes_s, busy * from_memory / rates.memory_all_bytes_s),
    ]
    return torch.stack([s / busy for s in seconds], dim=-1)


def concatenate(batches: list[NestInputs]) -> NestInputs:
    """Put batches of different nests into one, with empty stages and operands where one has fewer."""
    stages = max(batch.stage.shape[1] for batch in batches)
    operands = max(batch.operand.shape[2] for batch in batches)
    loops = max(batch.loop.shape[2] for batch in batches)

    def joined(name: str, *sizes: int) -> Tensor:
        parts: list[Tensor] = []
        for batch in batches:
            part: Tensor = getattr(batch, name)
            shape = list(part.shape)
            shape[1 : 1 + len(sizes)] = sizes
            whole = part.new_zeros(shape)
            whole[tuple(slice(size) for size in part.shape)] = part
            parts.append(whole)
        return torch.cat(parts)

    return NestInputs(
        stage=joined("stage", stages),
        operand=joined("operand", stages, operands),
        loop=joined("loop", stages, loops),
        dispatch=joined("dispatch"),
        is_stage=joined("is_stage", stages),
        is_operand=joined("is_operand", stages, operands),
        is_loop=joined("is_loop", stages, loops),
        log_bound=joined("log_bound"),
        terms=joined("terms", stages),
    )


class _Gather:
    """Picks columns; one of -1 reads as `missing`, by default 1, which is neutral in logs of ratios."""

    def __init__(self, values: Tensor) -> None:
        self._values = values

    def __call__(self, columns: Tensor, missing: float = 1.0) -> Tensor:
        picked = self._values[:, columns.reshape(-1)].reshape(len(self._values), *columns.shape)
        return picked.masked_fill(columns < 0, missing)


def _whether(share: Tensor) -> Tensor:
    """Near 1 for all but the smallest shares, 0 for none."""
    return share / (share + _SOME)


def _log(values: Tensor) -> Tensor:
    return torch.log(values.clamp(min=_TINY))

"""What a sketch will cost, from the ops it is made of: a bound, before any of it is compiled.

Every op costs the slower of its arithmetic and its traffic, and a launch. It says which sketches are worth
measuring, no more: how dispatches are formed and tiled is not known yet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iree.compiler import ir

from felix_mlir.cost import GpuMachine, Machine, MachineRates
from felix_mlir.sketches.products import element_bytes
from felix_mlir.sketches.root import RootOp, UnreadableOpError, read_root
from felix_mlir.sketches.sketch import Sketch

# IREE's CPU pipelines vectorise a window of one or two dimensions, by decomposing it to one; a larger one stays scalar
# (compiler/src/iree/compiler/Codegen/LLVMCPU, the decomposition of convolutions).
_MOST_WINDOWS = 2
# On a GPU, what one access brings of what is asked for if neighbours ask for distant elements: 4 bytes of 32.
_UNCOALESCED = 8


@dataclass(frozen=True)
class _Peaks:
    """What the whole machine does at most: operations a second by type, of matrix intrinsics too, and bytes a second
    from a cache of `cache_bytes` and from memory. Code whose accesses are not contiguous is `scattered` times slower.
    """

    flops: Mapping[str, float]
    matrix_flops: Mapping[str, float]
    cache_bytes: int
    cache_bytes_s: float
    memory_bytes_s: float
    scattered: int
    launch_s: float

    @classmethod
    def of(cls, machine: Machine | GpuMachine) -> _Peaks:
        limits, rates = machine.limits, machine.rates
        if isinstance(rates, MachineRates):
            flops = {name: limits.cores * rate for name, rate in rates.flops.items()}
            return cls(
                flops, {}, limits.l2_bytes * limits.cores, rates.l2_bytes_s * limits.cores, rates.memory_all_bytes_s,
                max(1, limits.vector_bytes // 4), rates.launch_s,
            )  # fmt: skip
        return cls(
            rates.flops, rates.matrix_flops, limits.l3_bytes, rates.l2_bytes_s, rates.memory_bytes_s, _UNCOALESCED,
            rates.launch_s,
        )  # fmt: skip

    def moved_s(self, size: float) -> float:
        return size / (self.cache_bytes_s if size <= self.cache_bytes else self.memory_bytes_s)


def estimated_s(
    root: RootOp, sketches: Sequence[Sketch], machine: Machine | GpuMachine
) -> tuple[float, dict[str, float]]:
    """Return the seconds a root op takes as it is, and as each of its sketches has it, by name."""
    peaks = _Peaks.of(machine)
    with ir.Context(), ir.Location.unknown():
        as_sketched: dict[str, float] = {}
        for sketch in sketches:
            module = ir.Module.parse(f"module {{\n{sketch.function('sketch')}}}")
            as_sketched[sketch.name] = _function_s(module.body.operations[0].operation, root.constants, peaks)
    traffic = sum(math.prod(tensor.shape) * element_bytes(tensor.element_type) for tensor in root.tensors)
    return _op_s(root, traffic, peaks), as_sketched


def _function_s(function: ir.Operation, constants: Sequence[bool], peaks: _Peaks) -> float:
    """Sum what the ops of a function take; what is made of weights alone is made before the model runs."""
    block = function.regions[0].blocks[0]
    known = {argument for argument, is_constant in zip(block.arguments, constants, strict=True) if is_constant}
    sources: dict[ir.Value, ir.Value] = {}
    total = 0.0
    for op in block.operations:
        if all(operand in known for operand in op.operation.operands):
            known.update(op.operation.results)
        elif _is_view(op.operation):
            (result,) = op.operation.results
            sources[result] = sources.get(op.operation.operands[0], op.operation.operands[0])
        else:
            total += _written_s(op.operation, sources, peaks)
    return total


def _is_view(op: ir.Operation) -> bool:
    """Whether an op takes a part of a tensor that can be read as fast where it is: in runs of neighbours."""
    if op.name != "tensor.extract_slice":
        return False
    strides = ir.DenseI64ArrayAttr(op.attributes["static_strides"])
    return all(stride == 1 for stride in list(strides)[-1:])


def _written_s(op: ir.Operation, sources: Mapping[ir.Value, ir.Value], peaks: _Peaks) -> float:
    """Return what one op takes; a view is read where its source is, by `sources`."""
    if op.name == "linalg.fill":  # Part of the dispatch that adds to it.
        return 0.0
    if op.name.startswith("linalg.") and op.regions:
        try:
            return _op_s(read_root(op), _traffic(op.operands, sources), peaks)
        except UnreadableOpError:
            pass
    if op.name in ("linalg.pack", "linalg.unpack", "tensor.pad", "tensor.insert_slice", "tensor.extract_slice"):
        moved = [value.type for value in (*op.operands, *op.results) if isinstance(value.type, ir.RankedTensorType)]
        return peaks.moved_s(sum(map(_bytes, moved))) + peaks.launch_s
    return 0.0


def _traffic(values: Sequence[ir.Value], sources: Mapping[ir.Value, ir.Value]) -> int:
    """Return the bytes of tensors; what several views of one tensor have in common is moved once."""
    read: dict[ir.Value, int] = {}
    for value in values:
        source = sources.get(value, value)
        read[source] = min(read.get(source, 0) + _bytes(value.type), _bytes(source.type))
    return sum(read.values())


def _op_s(op: RootOp, traffic: int, peaks: _Peaks) -> float:
    points = math.prod(op.extents)
    types = [tensor.element_type for tensor in op.tensors]
    has_windows = any(len(index.terms) > 1 for operand in op.indices for index in operand)
    matrix = peaks.matrix_flops.get(f"{types[0]}_{types[-1]}") if op.multiplies_and_adds and not has_windows else None
    rate = matrix or peaks.flops.get(types[-1], peaks.flops["f32"])
    scattered = 1 if _is_vectorised(op) else peaks.scattered
    arithmetic_s = len(op.scalar_ops) * points * scattered / rate
    return max(arithmetic_s, peaks.moved_s(traffic)) + peaks.launch_s


def _is_vectorised(op: RootOp) -> bool:
    """Whether some loop of the output's last dimension is contiguous, or absent, in every operand."""
    windows = sum(len(index.terms) > 1 for index in op.indices[0])
    if windows > _MOST_WINDOWS:
        return False
    wide = [index.loop for index in op.indices[-1] if index.loop is not None and op.extents[index.loop] > 1]
    if not wide:
        return bool(op.reduction_loops)
    return all(_is_contiguous(op, operand, wide[-1]) for operand in range(len(op.indices)))


def _is_contiguous(op: RootOp, operand: int, loop: int) -> bool:
    at = [
        (position, dict(index.terms)[loop])
        for position, index in enumerate(op.indices[operand])
        if any(term == loop for term, _ in index.terms)
    ]
    inner: Sequence[int] = op.tensors[operand].shape[at[0][0] + 1 :] if at else ()
    return not at or (at[0][1] == 1 and math.prod(inner) == 1)


def _bytes(type_: ir.RankedTensorType) -> int:
    return math.prod(type_.shape) * element_bytes(str(type_.element_type))

"""A configured dispatch read from IR into plain data: its compute ops, their loops and how loops correspond.

A dispatch is *configured* at the `executable-configurations` phase: its function carries `translation_info` and
every compute op (on a GPU often the root op alone) a `lowering_config`. Everything here comes from indexing maps and
iterator types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from iree.compiler import ir
from iree.compiler.dialects import linalg

LOWERING_CONFIG = "lowering_config"
TRANSLATION_INFO = "translation_info"
ROOT_OP = "root_op"

PARALLEL = "parallel"
REDUCTION = "reduction"


class UnsupportedDispatchError(Exception):
    """The dispatch holds something no template can be derived for; the message is the reason a user reads."""


@dataclass(frozen=True)
class Operand:
    """One tensor operand of a compute op.

    `indices` holds, per tensor dimension, the loops of the op its index depends on; `is_projection` says that
    each index is one plain loop or a constant (no sliding windows). `producer` is the number of the compute op of
    the dispatch that makes it, None for what comes from outside.
    """

    shape: tuple[int, ...]
    element_type: str
    element_bits: int
    indices: tuple[frozenset[int], ...]
    is_projection: bool
    is_output: bool
    producer: int | None = None


@dataclass(frozen=True)
class ComputeOp:
    """One structured op of a dispatch.

    `extents` are the trip counts of its loops, `dims` the dispatch-wide dimension of each loop (loops of two ops
    have the same dimension when a tensor that passes between them connects them).
    """

    name: str
    iterator_types: tuple[str, ...]
    extents: tuple[int, ...]
    dims: tuple[int, ...]
    operands: tuple[Operand, ...]
    scalar_ops: tuple[str, ...]
    is_root: bool
    feeds_root: bool

    @property
    def element_bits(self) -> int:
        """The widest element type it touches, in bits."""
        return max((operand.element_bits for operand in self.operands), default=32)

    @property
    def reduction_loops(self) -> tuple[int, ...]:
        return tuple(i for i, kind in enumerate(self.iterator_types) if kind == REDUCTION)


@dataclass(frozen=True)
class Dispatch:
    """The compute ops of one dispatch function in program order; exactly one of them is the root op."""

    name: str
    pipeline: str
    ops: tuple[ComputeOp, ...]

    @property
    def root_index(self) -> int:
        return next(index for index, op in enumerate(self.ops) if op.is_root)

    @property
    def root(self) -> ComputeOp:
        return self.ops[self.root_index]


def walk(operation: ir.Operation | ir.OpView) -> Iterator[ir.Operation]:
    """Yield `operation` and everything nested in it, in program order."""
    root = operation.operation
    yield root
    for region in root.regions:
        for block in region:
            for op in block:
                yield from walk(op)


def configured_functions(module: ir.Operation) -> dict[str, ir.Operation]:
    """Return the configured dispatch functions of a module by the name of their hal.executable."""
    functions: dict[str, ir.Operation] = {}
    for op in module.regions[0].blocks[0]:
        if op.operation.name == "hal.executable":
            name = ir.StringAttr(op.operation.attributes["sym_name"]).value
            for inner in walk(op):
                if inner.name == "func.func" and TRANSLATION_INFO in inner.attributes:
                    functions[name] = inner
    return functions


def executable_target(module: ir.Operation) -> str:
    """Return the executable target of a configured module, as MLIR prints it."""
    return next(str(op.attributes["target"]) for op in walk(module) if op.name == "hal.executable.variant")


def configured_ops(function: ir.Operation) -> list[ir.Operation]:
    """Return the ops of a dispatch function that carry a lowering configuration, in program order."""
    return [op for op in walk(function) if LOWERING_CONFIG in op.attributes]


def compute_ops(function: ir.Operation) -> list[ir.Operation]:
    """Return the structured ops of a dispatch function in program order.

    Those that carry a configuration and, for a GPU, the linalg ops that follow the root op without one of their own.
    """
    if not is_for_gpu(function):
        return configured_ops(function)
    return [op for op in walk(function) if LOWERING_CONFIG in op.attributes or _is_linalg_op(op)]


def is_for_gpu(function: ir.Operation) -> bool:
    """Whether a configured dispatch function is lowered by one of IREE's GPU pipelines."""
    return "#iree_gpu.pipeline<" in str(function.attributes[TRANSLATION_INFO])


def _is_linalg_op(op: ir.Operation) -> bool:
    return op.name.startswith("linalg.") and len(op.regions) > 0


def pipeline_of(function: ir.Operation) -> str:
    """Return the name of the code generation pipeline the function is configured for."""
    found = re.search(r"\bpipeline = (?:#[\w.]+<)?(\w+)", str(function.attributes[TRANSLATION_INFO]))
    return found.group(1) if found else ""


def read_dispatch(function: ir.Operation) -> Dispatch:
    """Read a configured dispatch function.

    Raises UnsupportedDispatchError when it has no root op, an op that is not a structured linalg op, or a
    dimension whose extent is not static.
    """
    operations = compute_ops(function)
    name = ir.StringAttr(function.attributes["sym_name"]).value
    roots = [op for op in operations if ROOT_OP in op.attributes]
    if len(roots) != 1:
        raise UnsupportedDispatchError(
            "the compiler chose no tile sizes for it: it is tiny, or only fills or moves data"
            if not operations
            else f"it has {len(roots)} root ops, a template needs exactly one"
        )
    for op in operations:
        if not op.name.startswith("linalg.") or op.name in ("linalg.pack", "linalg.unpack", "linalg.mmt4d"):
            raise UnsupportedDispatchError(f"{op.name} is not an op the templates tile")
    root = roots[0]
    loops = [_Loops.read(op) for op in operations]
    dims = _dispatch_dimensions(operations, loops)
    producers = [[_index_of(_defining_op(value), operations) for value in op.operands] for op in operations]
    root_index = operations.index(root)
    ops = tuple(
        ComputeOp(
            name=op.name,
            iterator_types=info.iterator_types,
            extents=info.extents,
            dims=op_dims,
            operands=tuple(
                replace(operand, producer=producer)
                for operand, producer in zip(info.operands, producers[index], strict=False)
            ),
            scalar_ops=_scalar_ops(op),
            is_root=index == root_index,
            feeds_root=index in producers[root_index],
        )
        for index, (op, info, op_dims) in enumerate(zip(operations, loops, dims, strict=True))
    )
    return Dispatch(name, pipeline_of(function), ops)


@dataclass(frozen=True)
class _Loops:
    iterator_types: tuple[str, ...]
    extents: tuple[int, ...]
    operands: tuple[Operand, ...]
    maps: tuple[ir.AffineMap, ...]

    @staticmethod
    def read(op: ir.Operation) -> _Loops:
        maps = tuple(attr.value for attr in _indexing_maps(op))
        outputs = len(maps) - _number_of_inputs(op)
        operands = tuple(
            _operand(value, map_, index >= len(maps) - outputs)
            for index, (value, map_) in enumerate(zip(op.operands, maps, strict=False))
        )
        loop_count = maps[0].n_dims
        if any(operand.is_output and not operand.is_projection for operand in operands):
            raise UnsupportedDispatchError(f"{op.name} writes through a non-projected index")
        written = {loop for operand in operands if operand.is_output for index in operand.indices for loop in index}
        kinds = tuple(PARALLEL if loop in written else REDUCTION for loop in range(loop_count))
        return _Loops(kinds, _extents(op, maps, operands, loop_count), operands, maps)


def _defining_op(value: ir.Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _index_of(op: ir.Operation | None, operations: list[ir.Operation]) -> int | None:
    return operations.index(op) if op in operations else None


def _indexing_maps(op: ir.Operation) -> ir.ArrayAttr:
    maps = linalg.get_indexing_maps(op)
    if maps is None:
        raise UnsupportedDispatchError(f"{op.name} has no indexing maps")
    return ir.ArrayAttr(maps)


def _number_of_inputs(op: ir.Operation) -> int:
    return ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])[0]


def _operand(value: ir.Value, map_: ir.AffineMap, is_output: bool) -> Operand:
    indices: list[frozenset[int]] = []
    is_projection = True
    for expr in map_.results:
        loops = frozenset(d for d in range(map_.n_dims) if _depends_on(expr, d))
        is_projection &= isinstance(expr, ir.AffineDimExpr) or not loops
        indices.append(loops)
    if not isinstance(value.type, ir.RankedTensorType | ir.MemRefType):
        return Operand((), str(value.type), _bits(value.type), tuple(indices), is_projection, is_output)
    tensor = value.type
    if not tensor.has_static_shape:
        raise UnsupportedDispatchError("a tensor has a dynamic shape; only static shapes are tuned")
    element = tensor.element_type
    return Operand(tuple(tensor.shape), str(element), _bits(element), tuple(indices), is_projection, is_output)


def _depends_on(expr: ir.AffineExpr, dim: int) -> bool:
    if isinstance(expr, ir.AffineDimExpr):
        return expr.position == dim
    if isinstance(expr, ir.AffineBinaryExpr):
        return _depends_on(expr.lhs, dim) or _depends_on(expr.rhs, dim)
    return False


def _bits(element: ir.Type) -> int:
    # An index is as wide as a pointer.
    return element.width if isinstance(element, (ir.IntegerType, ir.FloatType)) else 64


def _extents(
    op: ir.Operation, maps: tuple[ir.AffineMap, ...], operands: tuple[Operand, ...], loop_count: int
) -> tuple[int, ...]:
    extents = [0] * loop_count
    for map_, operand in zip(maps, operands, strict=True):
        for expr, size in zip(map_.results, operand.shape, strict=False):
            if isinstance(expr, ir.AffineDimExpr):
                extents[expr.position] = size
    if 0 in extents:
        raise UnsupportedDispatchError(f"{op.name} has a loop no operand dimension bounds")
    return tuple(extents)


def _scalar_ops(op: ir.Operation) -> tuple[str, ...]:
    """Names of the arithmetic ops of the body, in order (named linalg ops carry their body as a region too)."""
    return tuple(
        inner.operation.name
        for inner in op.regions[0].blocks[0]
        if inner.operation.name.split(".")[0] in ("arith", "math") and inner.operation.name != "arith.constant"
    )


def _dispatch_dimensions(operations: list[ir.Operation], loops: list[_Loops]) -> list[tuple[int, ...]]:
    """Number the loops of all ops so that loops connected through a tensor share a number.

    Same relation as IREE's IterationDimTracker (compiler/Codegen/Utils/SliceUtils.h): the i-th result of the
    producer's output map and of the consumer's operand map are one dimension when both are plain loops.
    """
    parent: dict[tuple[int, int], tuple[int, int]] = {
        (op, loop): (op, loop) for op, info in enumerate(loops) for loop in range(len(info.extents))
    }

    def find(node: tuple[int, int]) -> tuple[int, int]:
        while parent[node] != node:
            node = parent[node]
        return node

    for consumer, op in enumerate(operations):
        for map_, value in zip(loops[consumer].maps, op.operands, strict=False):
            producer = _index_of(_defining_op(value), operations)
            if producer is None:
                continue
            result = ir.OpResult(value).result_number
            output_map = loops[producer].maps[_number_of_inputs(operations[producer]) + result]
            for ours, theirs in zip(map_.results, output_map.results, strict=True):
                if isinstance(ours, ir.AffineDimExpr) and isinstance(theirs, ir.AffineDimExpr):
                    a = find((consumer, ours.position))
                    b = find((producer, theirs.position))
                    parent[a] = b
    # Number the root op's loops first so that its dimension i is its loop i.
    order = sorted(range(len(operations)), key=lambda i: ROOT_OP not in operations[i].attributes)
    numbers: dict[tuple[int, int], int] = {}
    for op in order:
        for loop in range(len(loops[op].extents)):
            numbers.setdefault(find((op, loop)), len(numbers))
    return [tuple(numbers[find((op, loop))] for loop in range(len(info.extents))) for op, info in enumerate(loops)]

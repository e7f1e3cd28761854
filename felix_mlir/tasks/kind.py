"""The kind of a root op, named from its indexing maps, iterator types and body."""

from __future__ import annotations

from felix_mlir.schedule import ComputeOp

_ADDITIONS = {"arith.addf", "arith.addi"}
_MULTIPLICATIONS = {"arith.mulf", "arith.muli"}


def root_kind(op: ComputeOp) -> str:
    """Return the kind a user knows the op by, such as 'matmul', 'conv2d' or 'depthwise conv2d'."""
    inputs = [operand for operand in op.operands if not operand.is_output and operand.indices]
    reduction = set(op.reduction_loops)
    body = set(op.scalar_ops)
    multiplies_and_adds = bool(body & _ADDITIONS) and bool(body & _MULTIPLICATIONS)
    windows = sum(len(index) > 1 for operand in inputs for index in operand.indices)
    loops_of = [set[int]().union(*operand.indices) for operand in inputs]
    if windows:
        if len(inputs) < 2 or not multiplies_and_adds:
            return f"pooling{windows}d"
        shared = _real(op, set.intersection(*loops_of) - reduction)
        filter_only = _real(op, loops_of[1] - loops_of[0])
        prefix = "" if not shared else "grouped " if filter_only else "depthwise "
        return f"{prefix}conv{windows}d"
    if not reduction:
        return "elementwise" if op.scalar_ops else "copy or transpose"
    if len(inputs) == 2 and multiplies_and_adds and reduction <= set.intersection(*loops_of):
        batch = _real(op, set.intersection(*loops_of) - reduction)
        rows, columns = _real(op, loops_of[0] - loops_of[1]), _real(op, loops_of[1] - loops_of[0])
        name = "matmul" if rows and columns else "matvec" if rows or columns else "dot"
        return f"batch {name}" if batch else name
    return "reduction"


def _real(op: ComputeOp, loops: set[int]) -> set[int]:
    """Loops that run more than once."""
    return {loop for loop in loops if op.extents[loop] > 1}

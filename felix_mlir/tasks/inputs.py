"""What a model's entry point takes, read from the model at the `flow` phase."""

from __future__ import annotations

from pathlib import Path

from iree.compiler import ir

from felix_mlir.errors import RequestError
from felix_mlir.schedule.dispatch import walk
from felix_mlir.tasks.isolate import IsolationError, TensorType, tensor_type


def read_input_types(flow: Path, function: str) -> list[TensorType]:
    """Return the types of the tensors `function` imports, in the order of its arguments.

    The torch dialect's functions are wrappers around an asynchronous one, which has the imports. Raises
    RequestError for an argument no input can be made up for.
    """
    with ir.Context() as context:
        module = ir.Module.parse(flow.read_bytes(), context)
        types: dict[int, TensorType] = {}
        for op in module.body.operations:
            if op.operation.name != "util.func":
                continue
            if ir.StringAttr(op.operation.attributes["sym_name"]).value not in (function, f"{function}$async"):
                continue
            for inner in walk(op):
                if inner.name == "hal.tensor.import" and isinstance(inner.operands[0].owner, ir.Block):
                    try:
                        types[ir.BlockArgument(inner.operands[0]).arg_number] = tensor_type(inner.results[0].type)
                    except IsolationError as error:
                        raise RequestError(f"an argument of {function} cannot be made up: {error}") from error
        return [types[argument] for argument in sorted(types)]

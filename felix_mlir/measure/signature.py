"""What a compiled module's function takes, read from the module itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import iree.runtime as rt
import numpy as np

from felix_mlir.errors import RequestError

_NUMPY_TYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16",
    "i8": "int8", "i1": "bool", "si64": "int64", "si32": "int32", "si8": "int8", "ui8": "uint8",
}  # fmt: skip


@dataclass(frozen=True)
class Signature:
    """`function` is the entry point, `inputs` the shape and type of each argument, None if the module does not say.

    Modules made from the torch dialect do not.
    """

    function: str
    inputs: tuple[tuple[tuple[int, ...], np.dtype], ...] | None


def read_signature(vmfb: Path) -> Signature:
    """Read the entry point of a module: `main`, or the only function there is.

    Raises RequestError for a file that is no module, several candidates, or arguments that are not tensors of
    static shape and a type numpy has.
    """
    try:
        module = rt.VmModule.mmap(rt.VmInstance(), str(vmfb))
    except (ValueError, RuntimeError, OSError) as error:
        raise RequestError(f"{vmfb} is no compiled IREE module") from error
    names = [name for name in module.function_names if not name.startswith("__") and not name.endswith("$async")]
    name = "main" if "main" in names else names[0] if len(names) == 1 else None
    if name is None:
        raise RequestError(f"{vmfb.name} has no function main, and {len(names)} others: name the entry point main")
    function = module.lookup_function(name)
    declaration = function.reflection.get("iree.abi.declaration", "") if function else ""
    if not declaration:
        return Signature(name, None)
    arguments = declaration.partition("(")[2].partition(") ->")[0]
    types = re.findall(r"%\w+: (?:tensor<([^>]*)>|([^,)]+))", arguments)
    return Signature(name, tuple(_tensor(tensor, other, vmfb) for tensor, other in types))


def _tensor(tensor: str, other: str, vmfb: Path) -> tuple[tuple[int, ...], np.dtype]:
    *shape, element = tensor.split("x")
    if other or "?" in shape or element not in _NUMPY_TYPES:
        raise RequestError(
            f"{vmfb.name} takes an argument of type {other or f'tensor<{tensor}>'}: "
            "only tensors of static shape and a numpy type can be made up; give the model example inputs"
        )
    return tuple(int(size) for size in shape), np.dtype(_NUMPY_TYPES[element])

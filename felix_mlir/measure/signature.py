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
    """`function` is the entry point, `inputs` the shape and type of each argument."""

    function: str
    inputs: tuple[tuple[tuple[int, ...], np.dtype], ...]


def entry_point(vmfb: Path) -> str:
    """Return the function a module is called by: `main`, or the only one there is.

    Raises RequestError for a file that is no module, or a module with several functions.
    """
    return _entry_point(_load(vmfb), vmfb)


def read_signature(vmfb: Path) -> Signature:
    """Read the entry point of a module and what it takes.

    Raises RequestError as `entry_point` does, for a module that does not say what it takes (those made from the torch
    dialect), and for arguments that are not tensors of static shape and a type numpy has.
    """
    module = _load(vmfb)
    name = _entry_point(module, vmfb)
    function = module.lookup_function(name)
    declaration = function.reflection.get("iree.abi.declaration", "") if function else ""
    if not declaration:
        raise RequestError(f"{vmfb.name} does not say what its arguments are, as modules made from linalg do")
    arguments = declaration.partition("(")[2].partition(") ->")[0]
    types = re.findall(r"%\w+: (?:tensor<([^>]*)>|([^,)]+))", arguments)
    return Signature(name, tuple(_tensor(tensor, other, vmfb) for tensor, other in types))


def _load(vmfb: Path) -> rt.VmModule:
    try:
        return rt.VmModule.mmap(rt.VmInstance(), str(vmfb))
    except (ValueError, RuntimeError, OSError) as error:
        raise RequestError(f"{vmfb} is no compiled IREE module") from error


def _entry_point(module: rt.VmModule, vmfb: Path) -> str:
    names = [name for name in module.function_names if not name.startswith("__") and not name.endswith("$async")]
    if "main" in names:
        return "main"
    if len(names) != 1:
        raise RequestError(f"{vmfb.name} has {len(names)} functions and none is main: name the entry point main")
    return names[0]


def _tensor(tensor: str, other: str, vmfb: Path) -> tuple[tuple[int, ...], np.dtype]:
    *shape, element = tensor.split("x")
    if other or "?" in shape or element not in _NUMPY_TYPES:
        raise RequestError(
            f"{vmfb.name} takes an argument of type {other or f'tensor<{tensor}>'}, for which no input can be made up"
        )
    return tuple(int(size) for size in shape), np.dtype(_NUMPY_TYPES[element])

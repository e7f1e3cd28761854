"""The passes in C++ (passes/ in the source tree), where they could be built."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from iree.compiler.passmanager import PassManager

from felix_mlir.errors import RequestError
from felix_mlir.native import LIBRARY, WITHOUT, native_file

_LANDING_SINK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
_ERROR_SIZE = 4096
# Passes call back as long as their pass manager lives.
_kept: list[Any] = []


def has_native() -> bool:
    """Whether the passes in C++ were built."""
    return native_file(LIBRARY) is not None


def add_native_apply_tuned(
    pm: PassManager, path: Path, *, require_landed: bool = True, sink: Callable[[str], None] | None = None
) -> None:
    """Add `felix-apply-tuned` for the result folder or configurations.mlir at `path`.

    `sink` gets the lines `Landing.lines` would have. Raises RequestError for what cannot be read.
    """
    error = ctypes.create_string_buffer(_ERROR_SIZE)
    callback = _LANDING_SINK(lambda line, _: sink(line.decode()) if sink else None)
    _kept.append(callback)
    if not library().felixAddApplyTunedPass(
        _handle(pm), os.fsencode(path), require_landed, callback, None, error, _ERROR_SIZE
    ):
        raise RequestError(error.value.decode())


def add_native_extract_tasks(pm: PassManager, output: Path) -> None:
    """Add `felix-extract-tasks`, which writes the tasks of the module to a file (`felix_mlir.passes.tuned`)."""
    library().felixAddExtractTasksPass(_handle(pm), os.fsencode(output))


@cache
def library() -> ctypes.CDLL:
    """Load the passes; raises RequestError where they were not built."""
    path = native_file(LIBRARY)
    if path is None:
        raise RequestError(WITHOUT)
    loaded = ctypes.CDLL(str(path))
    loaded.felixAddApplyTunedPass.restype = ctypes.c_bool
    loaded.felixAddApplyTunedPass.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_bool, _LANDING_SINK, ctypes.c_void_p, ctypes.c_char_p,
        ctypes.c_size_t,
    ]  # fmt: skip
    loaded.felixAddExtractTasksPass.restype = None
    loaded.felixAddExtractTasksPass.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return loaded


def _handle(pm: PassManager) -> int:
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return get_pointer(pm._CAPIPtr, b"iree.compiler.passmanager.PassManager._CAPIPtr")

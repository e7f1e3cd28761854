"""Models made by a user's function: `file.py:function` and `package.module:function`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from felix_mlir.errors import RequestError
from felix_mlir.importers.check_arguments import check_arguments
from felix_mlir.importers.messages import on_one_line

# A script that ends in sys.exit() must not end this program with it.
USER_ERRORS = (Exception, SystemExit)


def call_function(place: str, function: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return the module and the example inputs that `function`, found in the file or module `place`, returns.

    A file is run afresh at each call; modules it imports are shared as always. Its folder (for a module: the
    working directory) is on `sys.path` while it is imported and called. Raises RequestError when anything in
    that fails, with the message of the user's own exception.
    """
    is_file = place.endswith(".py")
    with _on_path(Path(place).resolve().parent if is_file else Path.cwd()):
        try:
            module = _run_file(Path(place)) if is_file else importlib.import_module(place)
        except RequestError:
            raise
        except USER_ERRORS as error:
            raise RequestError(f"importing {place} raised {on_one_line(error)}") from error
        build = getattr(module, function, None)
        if not callable(build):
            problem = "has no function" if build is None else f"has a {type(build).__name__}, not a function,"
            raise RequestError(f"{place} {problem} '{function}': name a function it defines")
        try:
            made = build()
        except USER_ERRORS as error:
            raise RequestError(f"{place}:{function} raised {on_one_line(error)}") from error
    if not isinstance(made, tuple | list) or len(made) != 2:
        raise RequestError(f"{place}:{function} returned {_describe(made)}: expected (nn.Module, tuple of tensors)")
    return check_arguments(f"{place}:{function} returned", made[0], made[1])


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise RequestError(f"no such file '{path}': give the path of an existing .py file")
    # A name of its own, for `torch.py` must not hide torch; it stays registered, for classes are looked up
    # by their module's name when exporting.
    name = "felix_mlir_file_" + re.sub(r"\W", "_", str(path.resolve()))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a .py file always has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def _on_path(folder: Path) -> Generator[None]:
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # The user's code may have removed it.
            sys.path.remove(entry)


def _describe(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(part).__name__ for part in value)})"
    return type(value).__name__

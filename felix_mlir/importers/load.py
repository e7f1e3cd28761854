"""`load_model`: from whatever names a model to a Model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from felix_mlir.errors import RequestError
from felix_mlir.importers.model import Model

if TYPE_CHECKING:  # torch takes seconds to import, and MLIR files do without it.
    import torch
    from torch import nn

MLIR_SUFFIXES = (".mlir", ".mlirbc")
EXPORT_SUFFIX = ".pt2"


def load_model(
    source: str | Path | nn.Module,
    directory: Path,
    example_inputs: tuple[torch.Tensor, ...] | None = None,
) -> Model:
    """Return the model `source` names.

    `source` is one of: the path of a `.mlir` or `.mlirbc` file, used in place; the path of an archive of
    torch.export.save (`.pt2`) that holds example inputs; `file.py:function` or `package.module:function`, a
    function of no arguments returning `(nn.Module, example_inputs)`; an `nn.Module`, with `example_inputs`.
    Example inputs are the positional arguments of the module, all of them tensors.

    A PyTorch model is exported in evaluation mode for the shapes of its example inputs and written to
    `directory`, made if missing, as `<name>.mlir` and, when it has weights, `<name>.irpa`; files that have
    these names are replaced. The module itself is left as it was.

    Raises RequestError for a source that is none of these, cannot be read, fails in the user's own code, or
    that torch.export or torch-mlir cannot handle.
    """
    if not isinstance(source, str | Path):
        return _from_module(source, example_inputs, directory)
    if example_inputs is not None:
        raise RequestError(f"'{source}' takes no example_inputs: they go with an nn.Module")
    path = Path(source)
    if path.suffix in MLIR_SUFFIXES:
        _check_file(path)
        return Model(_safe_name(path.stem), path, None, False, None, None)
    if path.suffix == EXPORT_SUFFIX:
        _check_file(path)
        return _from_archive(path, directory)
    if path.suffix == ".py":
        raise RequestError(f"'{source}' names no function: write {source}:function")
    place, colon, function = str(source).rpartition(":")
    if not colon:
        raise RequestError(
            f"'{source}' is no model: expected a .mlir, .mlirbc or .pt2 file, or file.py:function or "
            "package.module:function returning (nn.Module, example_inputs)"
        )
    return _from_function(place, function, directory)


def _from_module(module: nn.Module, inputs: tuple[torch.Tensor, ...] | None, directory: Path) -> Model:
    from felix_mlir.importers.check_arguments import check_arguments
    from felix_mlir.importers.torch_export import export_module
    from felix_mlir.importers.torch_import import write_program

    module, tensors = check_arguments("load_model was given", module, inputs)
    name = type(module).__name__
    return write_program(_safe_name(name), export_module(name, module, tensors), directory)


def _from_function(place: str, function: str, directory: Path) -> Model:
    from felix_mlir.importers.python_function import call_function
    from felix_mlir.importers.torch_export import export_module
    from felix_mlir.importers.torch_import import write_program

    module, tensors = call_function(place, function)
    stem = Path(place).stem if place.endswith(".py") else place.rpartition(".")[2]
    program = export_module(f"{place}:{function}", module, tensors)
    return write_program(_safe_name(f"{stem}_{function}"), program, directory)


def _from_archive(path: Path, directory: Path) -> Model:
    from felix_mlir.importers.torch_export import open_archive
    from felix_mlir.importers.torch_import import write_program

    return write_program(_safe_name(path.stem), open_archive(path), directory)


def _check_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            is_empty = not file.read(1)
    except FileNotFoundError:
        raise RequestError(f"no such file '{path}': give the path of an existing model") from None
    except IsADirectoryError:
        raise RequestError(f"'{path}' is a directory: give the path of the model file in it") from None
    except OSError as error:
        raise RequestError(f"cannot read '{path}' ({error.strerror}): make it readable") from error
    if is_empty:
        raise RequestError(f"'{path}' is empty: write the model again")


def _safe_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name).lstrip(".-") or "model"

"""The features of every dispatch of a module, as a compiler pass written in Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iree.compiler import ir

from felix_mlir.features.feature import Feature
from felix_mlir.features.of_template import derive_features
from felix_mlir.features.tiling import UnsupportedNestError
from felix_mlir.schedule import (
    ConfigurationError,
    Limits,
    UnsupportedDispatchError,
    default_of,
    limits_of,
    read_dispatch,
    templates_of,
)
from felix_mlir.schedule.dispatch import configured_functions
from felix_mlir.symbolic import ReadError, TilingError, lift_shapes, read_nest, tile_symbolically


@dataclass(frozen=True)
class DispatchFeatures:
    """The features of one dispatch of a module under `template`; `reason` says why there are none.

    Expressions are over the template's knobs, the machine's symbols, and the symbols of `extents`.
    """

    dispatch: str
    template: str
    features: tuple[Feature, ...]
    extents: dict[str, int]
    reason: str


def feature_report_pass(sink: Callable[[DispatchFeatures], None]) -> Callable[[Any, Any], None]:
    """Return a pass for `iree.compiler.passmanager.PassManager.add` that reports features and changes nothing.

    It runs on a module at the `executable-configurations` phase and calls `sink` once for each of its dispatches, in
    order.
    """

    def run(operation: Any, _pass: Any) -> None:
        functions = configured_functions(operation.operation)
        if not functions:
            return
        limits = limits_of(operation.operation)
        for name, function in functions.items():
            sink(_report(name, function, limits))

    return run


def _report(name: str, function: ir.Operation, limits: Limits) -> DispatchFeatures:
    try:
        dispatch = read_dispatch(function)
        template = templates_of(dispatch, default_of(function), limits)[0]
        alone = f"module {{\n{_executable_of(function).get_asm(use_local_scope=True)}\n}}"
        nest, extents = lift_shapes(read_nest(tile_symbolically(template, alone), template))
        return DispatchFeatures(name, template.name, tuple(derive_features(nest, template)), extents, "")
    except (UnsupportedDispatchError, ConfigurationError, TilingError, ReadError, UnsupportedNestError) as error:
        return DispatchFeatures(name, "", (), {}, str(error))


def _executable_of(function: ir.Operation) -> ir.Operation:
    op = function
    while op.name != "hal.executable":
        op = op.parent.operation
    return op

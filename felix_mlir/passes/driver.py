"""Compile a whole model with tuned configurations: a child process around IREE's embedding API.

Run as `python -m felix_mlir.compiler.driver INPUT -o OUT.vmfb [--configurations FILE] [--landing FILE] FLAGS...`.
INPUT is the model at the `flow` phase. The module is taken out of the compiler at `executable-configurations`,
the configurations are written to its dispatches, and the compiler goes on from there. It is never serialised in
between: the bytecode writer loses weights that are packed in `#util.composite` at that phase, and text would
spell them out.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from math import prod
from pathlib import Path
from typing import Any

from iree.compiler import ir
from iree.compiler.api import Invocation, Output, Session, Source, ctypes_dl

from felix_mlir.schedule.configuration import (
    Configuration,
    ConfigurationError,
    TileLevel,
    read_configuration,
    write_configuration,
)
from felix_mlir.schedule.dispatch import configured_functions, read_dispatch, walk

CONFIGURATIONS = "executable-configurations"
TARGETS = "executable-targets"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="felix_mlir.compiler.driver")
    parser.add_argument("input", type=Path)
    parser.add_argument("-o", dest="output", type=Path, required=True)
    parser.add_argument("--configurations", type=Path)
    parser.add_argument("--landing", type=Path)
    options, flags = parser.parse_known_args(arguments)
    configurations = {
        name: Configuration.from_json(data)
        for name, data in (json.loads(options.configurations.read_text()) if options.configurations else {}).items()
    }
    session = Session()
    try:
        session.set_flags("--iree-codegen-add-tuner-attributes", *flags)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    invocation = session.invocation()
    invocation.enable_console_diagnostics()
    if not invocation.parse_source(Source.open_file(session, str(options.input))):
        return 1
    if not _run(invocation, "flow", CONFIGURATIONS):
        return 1
    module = invocation.export_module()
    expected, landing = _configure(module, configurations)
    invocation.import_module(module)
    if not _run(invocation, CONFIGURATIONS, TARGETS):
        return 1
    counts = _workgroup_counts(invocation.export_module())
    for name, workgroups in expected.items():
        if counts.get(name) != workgroups:
            landing[name] = f"{counts.get(name)} workgroups were generated where {workgroups} were configured"
    if options.landing:
        options.landing.write_text(json.dumps(landing))
    invocation.import_module(module)
    if not _run(invocation, TARGETS, "end"):
        return 1
    output = Output.open_file(str(options.output))
    invocation.output_vm_bytecode(output)
    output.keep()
    return 0


def _run(invocation: Invocation, start: str, stop: str) -> bool:
    # The bindings have no method for the phases; these are public functions of the embedding API
    # (iree/compiler/embedding_api.h).
    library: Any = ctypes_dl._dylib  # pyright: ignore[reportPrivateUsage]
    handle: Any = invocation._inv_p  # pyright: ignore[reportPrivateUsage]
    for setter, phase in (
        (library.ireeCompilerInvocationSetCompileFromPhase, start),
        (library.ireeCompilerInvocationSetCompileToPhase, stop),
    ):
        setter.restype = None
        setter.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        setter(handle, phase.encode())
    return bool(invocation.execute())


def _configure(module: ir.Operation, configurations: dict[str, Configuration]) -> tuple[dict[str, int], dict[str, str]]:
    """Write the configurations; return the workgroups each must lead to, and why any did not land ("" if it did)."""
    functions = configured_functions(module)
    expected: dict[str, int] = {}
    landing: dict[str, str] = {}
    for name, configuration in configurations.items():
        function = functions.get(name)
        if function is None:
            landing[name] = "the compiled model has no such dispatch"
            continue
        try:
            write_configuration(function, configuration)
        except ConfigurationError as error:
            landing[name] = str(error)
            continue
        landing[name] = "" if read_configuration(function) == configuration else "the attribute reads back differently"
        expected[name] = _workgroups(function, configuration)
    return expected, landing


def _workgroups(function: ir.Operation, configuration: Configuration) -> int:
    dispatch = read_dispatch(function)
    sizes = configuration.ops[dispatch.root_index].get(TileLevel.DISTRIBUTION, ())
    return prod(-(-extent // size) for extent, size in zip(dispatch.root.extents, sizes, strict=True) if size)


def _workgroup_counts(module: ir.Operation) -> dict[str, int]:
    """Number of workgroups each executable's export launches, where it is a constant."""
    counts: dict[str, int] = {}
    for executable in module.regions[0].blocks[0]:
        if executable.operation.name != "hal.executable":
            continue
        name = ir.StringAttr(executable.operation.attributes["sym_name"]).value
        for export in walk(executable):
            if export.name == "hal.executable.export":
                returned = [op for op in walk(export) if op.name == "hal.return"]
                sizes = [_constant(value) for value in returned[0].operands] if returned else [None]
                if None not in sizes:
                    counts[name] = prod(size for size in sizes if size is not None)
    return counts


def _constant(value: ir.Value) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return ir.IntegerAttr(owner.attributes["value"]).value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

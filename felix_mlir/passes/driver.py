"""iree-compile with tuned configurations: felix-iree-compile in Python, on IREE's embedding API.

`python -m felix_mlir.passes.driver INPUT -o OUT --felix-tuned=DIR|FILE FLAGS...`, in a process of its own. felix-mlir
compiles whole models with it, and it stands in for the driver in C++ (passes/felix_iree_compile.cpp) where that could
not be built. The module is taken out of the compiler at executable-configurations, the configurations are written to
its dispatches, and the compiler goes on from there. It is never serialised in between: the bytecode writer loses
weights that are packed in `#util.composite` at that phase, and text would spell them out. Rewrites are applied by a
flag of iree-compile; the module is taken out after that phase too, to see that they were.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from iree.compiler.api import Output, Session, Source, ctypes_dl

from felix_mlir.errors import FelixError, RequestError, WorkError
from felix_mlir.passes.apply_tuned import (
    PREFIX,
    Landing,
    RewriteLanding,
    apply_tuned,
    check_rewrites,
    check_workgroups,
    is_for_another,
)
from felix_mlir.passes.extract_tasks import extract_configured
from felix_mlir.passes.rewrites import PREPROCESSING, SPEC_FLAG
from felix_mlir.passes.tuned import Tuned, configurations_file, read_tuned, rewrites_file, tasks_text

CONFIGURATIONS, TARGETS, END = "executable-configurations", "executable-targets", "end"
# The phases of iree-compile before and after the one where configurations enter.
_EARLY = ("start", "input", "abi", PREPROCESSING, "global-optimization", "dispatch-creation", "flow", "stream",
          "executable-sources")  # fmt: skip
_LATE = (TARGETS, "hal", "vm", END)
_PHASES = (*_EARLY, CONFIGURATIONS, *_LATE)
# Read by iree-compile's own main function, and not implemented here.
_STOCK_ONLY = ("output-format", "compile-mode", "split-input-file", "verify", "dump-compilation-phases-to",
               "remarks-filter", "remarks-output-file", "emit-mlir-bytecode-version")  # fmt: skip
_SWITCHES = ("emit-mlir-bytecode", "felix-require-landed", "felix-print-landed")
_TUNER_ATTRIBUTES = "--iree-codegen-add-tuner-attributes"


def main(arguments: Sequence[str]) -> int:
    """Run the driver; returns the exit status."""
    try:
        # As LLVM reads them: a switch without a value takes none from the next argument.
        valued = [f"{argument}=true" if argument.lstrip("-") in _SWITCHES else argument for argument in arguments]
        options, flags = _parser().parse_known_args(valued)
        unknown = [flag for flag in flags if _name(flag).startswith("felix-")]
        if unknown:
            raise RequestError(f"unknown flag {unknown[0]}: there are --felix-tuned, --felix-require-landed, "
                               "--felix-print-landed and --felix-extract-tasks")  # fmt: skip
        refused = [flag for flag in flags if _name(flag) in _STOCK_ONLY]
        if refused:
            raise RequestError(
                f"{refused[0]} needs the driver in C++: install felix-mlir where there is a C++ compiler"
            )
        if options.compile_from in _LATE:
            raise RequestError(f"--compile-from={options.compile_from}: configurations enter at {CONFIGURATIONS}")
        tuned = _read(options)
        # Options of LLVM and MLIR can be set for the whole process only. An unknown one ends it.
        all_flags = (*flags, *missing_flags(tuned, flags), *_rewriting_flags(options, tuned, flags), _TUNER_ATTRIBUTES)
        ctypes_dl._initializeGlobalCL("felix-iree-compile", *all_flags)  # pyright: ignore[reportPrivateUsage]
        _Driver(options, tuned, Session()).run()
    except FelixError as error:
        print(f"felix-iree-compile: {error}" if str(error) else "", file=sys.stderr, end="\n" if str(error) else "")
        return error.exit_status
    return 0


def _read(options: argparse.Namespace) -> Tuned | None:
    """Read the result, without the rewrites where the input is beyond their phase: it has them already."""
    if options.felix_tuned is None:
        return None
    tuned = read_tuned(options.felix_tuned, version("iree-base-compiler"))
    return replace(tuned, rewrites=None) if _is_before(PREPROCESSING, options.compile_from) else tuned


def _rewriting_flags(options: argparse.Namespace, tuned: Tuned | None, flags: Sequence[str]) -> tuple[str, ...]:
    if tuned is None or tuned.rewrites is None:
        return ()
    if any(_name(flag) == _name(SPEC_FLAG) for flag in flags):
        raise RequestError(f"{SPEC_FLAG} can't be used here: {options.felix_tuned} brings its own rewrites")
    return (f"{SPEC_FLAG}={rewrites_file(configurations_file(options.felix_tuned))}",)


def missing_flags(tuned: Tuned | None, flags: Sequence[str]) -> list[str]:
    """Return the flags of a result that a command line leaves open.

    One that names a target has chosen all of it: what was tuned for another one will not match.
    """
    if tuned is None:
        return []
    given = {_name(flag) for flag in flags}
    has_target = any(_selects_target(name) for name in given)
    wanted = [flag for flag in tuned.target_flags if not (has_target and _selects_target(_name(flag)))]
    return [flag for flag in (*wanted, *tuned.model_flags) if _name(flag) not in given]


def _name(flag: str) -> str:
    return flag.lstrip("-").split("=")[0]


def _is_before(phase: str, other: str) -> bool:
    return _PHASES.index(phase) < _PHASES.index(other)


def _selects_target(name: str) -> bool:
    return name.startswith(("iree-hal-target", "iree-hal-local-target"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="felix-iree-compile", allow_abbrev=False)
    parser.add_argument("input")
    parser.add_argument("-o", dest="output", default="-")
    parser.add_argument("--compile-from", choices=_PHASES, default=_PHASES[0])
    parser.add_argument("--compile-to", choices=_PHASES, default=END)
    parser.add_argument("--emit-mlir-bytecode", type=_boolean, default=False)
    parser.add_argument("--felix-tuned", type=Path)
    parser.add_argument("--felix-require-landed", type=_boolean, default=True)
    parser.add_argument("--felix-print-landed", type=_boolean, default=False)
    parser.add_argument("--felix-extract-tasks", type=Path)
    return parser


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise argparse.ArgumentTypeError(f"'{text}' is neither true nor false")
    return text.lower() in ("true", "1")


class _FailedError(WorkError):
    """The compiler has said why."""


class _Driver:
    def __init__(self, options: argparse.Namespace, tuned: Tuned | None, session: Session) -> None:
        self._options = options
        self._tuned = tuned
        self._session = session
        self._invocation = session.invocation()
        self._phase: str = options.compile_from
        self._rewrites: Sequence[RewriteLanding] = ()

    def run(self) -> None:
        options = self._options
        self._invocation.enable_console_diagnostics()
        try:
            source = Source.open_file(self._session, options.input)
        except ValueError as error:
            raise WorkError(f"error opening input file: {error}") from error
        if not self._invocation.parse_source(source):
            raise _FailedError("")
        if not _is_before(options.compile_to, PREPROCESSING):
            self._check_rewrites()
        if options.compile_to in _EARLY:
            what = "only rewrites are" if self._rewrites else "nothing is"
            print(f"{PREFIX}{what} applied before the phase {CONFIGURATIONS}", file=sys.stderr)
            self._report(())
        else:
            self._advance(CONFIGURATIONS)
            self._configure()
        self._advance(options.compile_to)
        self._write()

    def _check_rewrites(self) -> None:
        if self._tuned is None or self._tuned.rewrites is None:
            return
        self._advance(PREPROCESSING)
        module = self._invocation.export_module()
        self._rewrites = check_rewrites(module, self._tuned.rewrites)
        self._invocation.import_module(module)

    def _configure(self) -> None:
        """Write the configurations, and see them through code generation."""
        options, module = self._options, self._invocation.export_module()
        if options.felix_extract_tasks:
            options.felix_extract_tasks.write_text(tasks_text(extract_configured(module)))
        if self._tuned is None:
            self._invocation.import_module(module)
            return
        landings = apply_tuned(module, self._tuned)
        self._invocation.import_module(module)
        is_refused = options.felix_require_landed and any(landing.is_lost for landing in (*self._rewrites, *landings))
        is_found = any(landing.is_found for landing in landings)
        if options.compile_to != CONFIGURATIONS and is_found and not is_refused:
            self._advance(TARGETS)
            module = self._invocation.export_module()
            check_workgroups(module, self._tuned, landings)
            self._invocation.import_module(module)
        self._report(landings)

    def _report(self, tasks: Sequence[Landing]) -> None:
        """Say what became of the result, of its tasks those that were looked for."""
        landings = (*self._rewrites, *tasks)
        if self._options.felix_print_landed:
            for line in (line for landing in landings for line in landing.lines()):
                print(line, file=sys.stderr)
        is_strict = self._options.felix_require_landed
        if self._tuned is not None and is_strict and is_for_another(landings):
            what = f"{self._options.felix_tuned} was tuned for another model or target ({self._tuned.model})"
            near = "".join(f"\n  {task.subject} {task.problem}" for task in tasks if task.near)
            raise RequestError(f"{what}: none of its {'ops and ' if self._rewrites else ''}tasks is here{near}")
        for landing in landings:
            if not landing.has_landed:
                kind = "error" if landing.is_lost and is_strict else "warning"
                print(f"{kind}: {PREFIX}{landing.subject} {landing.problem}", file=sys.stderr)
        if is_strict and any(landing.is_lost for landing in landings):
            raise _FailedError("")

    def _advance(self, stop: str) -> None:
        """Run the compiler to the end of a phase, if it is not there yet."""
        if not _is_before(self._phase, stop):
            return
        # The bindings have no method for the phases; these are public functions of the embedding API
        # (iree/compiler/embedding_api.h).
        library: Any = ctypes_dl._dylib  # pyright: ignore[reportPrivateUsage]
        handle: Any = self._invocation._inv_p  # pyright: ignore[reportPrivateUsage]
        for setter, phase in (
            (library.ireeCompilerInvocationSetCompileFromPhase, self._phase),
            (library.ireeCompilerInvocationSetCompileToPhase, stop),
        ):
            setter.restype = None
            setter.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
            setter(handle, phase.encode())
        if not self._invocation.execute():
            raise _FailedError("")
        self._phase = stop

    def _write(self) -> None:
        options = self._options
        output = Output.open_file(options.output)
        if options.compile_to == END:
            self._invocation.output_vm_bytecode(output)
        elif options.emit_mlir_bytecode:
            self._invocation.output_ir_bytecode(output)
        else:
            self._invocation.output_ir(output)
        output.keep()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Tuned configurations as a transform library: a file that a stock iree-compile applies by itself.

`--iree-codegen-transform-dialect-library=FILE` runs FILE's `@__kernel_config` on every dispatch function just before
the compiler chooses tile sizes; it chooses none for a function that has `translation_info` by then. A task is one
`transform.sequence`: it follows the function from its stores upwards, stops where that is not the task's dispatch,
and at the end sets the attributes.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from iree.compiler import ir

from felix_mlir.passes.canonical import canonical_form
from felix_mlir.passes.dispatch_matcher import Finder, UncarriedError, is_cpu
from felix_mlir.passes.transform_script import Script
from felix_mlir.schedule import ConfigurationAttributes, configured_functions
from felix_mlir.schedule.dispatch import LOWERING_CONFIG, TRANSLATION_INFO, configured_ops

FILE_NAME = "tuning_spec.mlir"
LIBRARY_FLAG = "--iree-codegen-transform-dialect-library"

# On the CPU the compiler still rewrites dispatches between @__kernel_config and its choice of tile sizes, and drops
# the attributes of what it rewrites (convolutions without batch, f16). The library runs the passes that do so
# first; they find nothing left to do when the compiler runs them again. That does not hold where data is packed:
# such dispatches, which are not tuned, are left alone.
_CPU_PASSES = (
    "iree-codegen-materialize-device-encoding",
    "iree-codegen-cpu-propagate-data-layout",
    "iree-codegen-rematerialize-parallel-ops",
    "iree-codegen-insert-batch-dim-for-batchless-conv",
    "iree-llvmcpu-expand-f16-op-to-f32",
    "iree-convert-accgemm-to-gemm",
)

_PACKING = ("iree_encoding.set_encoding", "iree_encoding.unset_encoding")
_ENTRY_POINT = "__kernel_config"
_ATTEMPT = " failures(propagate) {"


@dataclass(frozen=True)
class SpecTask:
    """A task and what to set in its dispatches.

    `configured` is the text of its isolated program at executable-configurations, with any configuration.
    """

    id: str
    configured: str
    attributes: ConfigurationAttributes


@dataclass(frozen=True)
class TuningSpec:
    """The text of a transform library, and for each task that is not in it the reason."""

    text: str
    uncarried: Mapping[str, str]


def tuning_spec(tasks: Sequence[SpecTask], flags: Sequence[str]) -> TuningSpec:
    """Return the transform library for `tasks`, all of one target; `flags` are those of iree-compile to use with it.

    A task whose dispatch cannot be told from others is left out and named in `uncarried`, and in the text.
    """
    uncarried: dict[str, str] = {}
    carried: dict[str, str] = {}
    comments: list[str] = []
    with ir.Context(), ir.Location.unknown():
        modules = [ir.Module.parse(task.configured) for task in tasks]
        functions = [next(iter(configured_functions(module.operation).values())) for module in modules]
        library = ir.Module.parse("module attributes {transform.with_named_sequence} {}")
        blocks = [entry := Script.of_library(library, _ENTRY_POINT), entry.attempts(entry.argument)]
        if any(map(is_cpu, functions)):
            comments.append("Dispatches that pack nothing, as the compiler makes them next.")
            blocks.append(unpacked := blocks[-1].attempt(blocks[-1].argument))
            blocks.append(unpacked.attempts(_run_passes(unpacked)))
        for task, function in zip(tasks, functions, strict=True):
            attempt, form = blocks[-1].attempt(blocks[-1].argument), canonical_form(function)
            try:
                if form in carried:
                    raise UncarriedError(f"task {carried[form]} is for the same dispatch")
                _write_task(attempt, task, function)
                carried[form] = task.id
                comments.append(f"Task {task.id}.")
            except UncarriedError as error:
                uncarried[task.id] = str(error)
                attempt.discard()
        for block in blocks:
            block.end()
        library.operation.verify()
        text = _commented(library.operation.get_asm(use_local_scope=True), comments)
    return TuningSpec(f"{_header(flags, uncarried)}{text}\n", uncarried)


def _run_passes(script: Script) -> ir.Value:
    """Run the passes where nothing is packed; returns the new handle to the function."""
    script.check_count(script.matching(script.argument, _PACKING), 0)
    function = script.argument
    for name in _CPU_PASSES:
        function = script.run_pass(function, name)
    return function


def _write_task(script: Script, task: SpecTask, function: ir.Operation) -> None:
    operations = configured_ops(function)
    configurations = task.attributes.lowering_configs
    if len(operations) != len(configurations):
        raise UncarriedError(
            f"the dispatch has {len(operations)} compute ops, the configuration is for {len(configurations)}"
        )
    handles = Finder(script, function).find(operations)
    script.annotate(script.argument, TRANSLATION_INFO, task.attributes.translation_info)
    for handle, configuration in zip(handles, configurations, strict=True):
        script.annotate(handle, LOWERING_CONFIG, configuration)
    script.end()


def _header(flags: Sequence[str], uncarried: Mapping[str, str]) -> str:
    command = shlex.join((*flags, f"{LIBRARY_FLAG}={FILE_NAME}"))
    return "".join(f"// {line}\n" for line in (
        f"Tile sizes found by felix-mlir, for iree-compile from iree-base-compiler {version('iree-base-compiler')}:",
        f"  iree-compile MODEL {command}",
        "With other flags or versions the dispatches differ; those not found here keep the compiler's sizes.",
        *(f"Task {id_} is not in this file: {reason}." for id_, reason in uncarried.items()),
    ))  # fmt: skip


def _commented(text: str, comments: Sequence[str]) -> str:
    """Put a comment before each attempt."""
    lines: list[str] = []
    left = iter(comments)
    for line in text.splitlines():
        if line.endswith(_ATTEMPT):
            lines.append(f"{line[: len(line) - len(line.lstrip())]}// {next(left)}")
        lines.append(line)
    return "\n".join(lines)

"""Tuned configurations as a transform library: a file that a stock iree-compile applies by itself.

`--iree-codegen-transform-dialect-library=FILE` runs FILE's `@__kernel_config` on every dispatch function just before
the compiler chooses tile sizes; it chooses none for a function that has `translation_info` by then. A task is three
named sequences: `@find_ID` walks a function from its stores upwards and fails where it is not the task's dispatch,
`@match_ID` makes a matcher of that for `transform.foreach_match`, `@apply_ID` sets the attributes.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from iree.compiler import ir

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
    sections: list[tuple[str, list[ir.Operation]]] = []
    for_cpu = False
    with ir.Context(), ir.Location.unknown():
        for task in tasks:
            module = ir.Module.parse(task.configured)
            function = next(iter(configured_functions(module.operation).values()))
            try:
                sections.append((f"Task {task.id}.", _task(task, function)))
                for_cpu = is_cpu(function)
            except UncarriedError as error:
                uncarried[task.id] = str(error)
                sections.append((f"Task {task.id} is not in this file: {error}.", []))
        carried = [task.id for task in tasks if task.id not in uncarried]
        sections.append(("All tasks.", _entry_point(carried, for_cpu)))
        return TuningSpec(f"{_header(flags)}{_module(sections)}", uncarried)


def _header(flags: Sequence[str]) -> str:
    command = shlex.join((*flags, f"{LIBRARY_FLAG}={FILE_NAME}"))
    return (
        "// Tile sizes found by felix-mlir, for iree-compile from iree-base-compiler "
        f"{version('iree-base-compiler')}:\n//   iree-compile MODEL {command}\n"
        "// With other flags or versions the dispatches differ; those not found here keep the compiler's sizes.\n"
    )


def _task(task: SpecTask, function: ir.Operation) -> list[ir.Operation]:
    """Return the named sequences of a task."""
    operations = configured_ops(function)
    configurations = task.attributes.lowering_configs
    if len(operations) != len(configurations):
        raise UncarriedError(
            f"the dispatch has {len(operations)} compute ops, the configuration is for {len(configurations)}"
        )
    count = len(operations) + 1
    find = Script(f"find_{task.id}", 1, count)
    found = Finder(find, function).find(find.arguments[0], operations)
    match = Script(f"match_{task.id}", 1, count)
    match.check_name(match.arguments[0], "func.func")
    matched = match.include(f"find_{task.id}", match.arguments, count)
    apply = Script(f"apply_{task.id}", count, 0)
    apply.annotate(apply.arguments[0], TRANSLATION_INFO, task.attributes.translation_info)
    for handle, configuration in zip(apply.arguments[1:], configurations, strict=True):
        apply.annotate(handle, LOWERING_CONFIG, configuration)
    return [find.finish(found), match.finish(matched), apply.finish()]


def _entry_point(carried: Sequence[str], for_cpu: bool) -> list[ir.Operation]:
    """Return `@__kernel_config` and what it is made of."""
    sequences = {f"match_{id_}": f"apply_{id_}" for id_ in carried}
    configure = Script("configure" if for_cpu else _ENTRY_POINT, 1, 0, "consumed")
    function = configure.arguments[0]
    for name in _CPU_PASSES if for_cpu else ():
        function = configure.run_pass(function, name)
    if sequences:
        configure.foreach_match(function, sequences)
    if not for_cpu:
        return [configure.finish()]
    packs = Script("packs_nothing", 1, 0)
    packs.check_count(packs.matching(packs.arguments[0], _PACKING), 0)
    match = Script("is_unpacked", 1, 1)
    match.check_name(match.arguments[0], "func.func")
    match.include("packs_nothing", match.arguments, 0)
    entry = Script(_ENTRY_POINT, 1, 0, "consumed")
    entry.foreach_match(entry.arguments[0], {"is_unpacked": "configure"})
    return [packs.finish(), match.finish(match.arguments), configure.finish(), entry.finish()]


def _module(sections: Sequence[tuple[str, Sequence[ir.Operation]]]) -> str:
    module = ir.Module.parse("module attributes {transform.with_named_sequence} {}")
    for _, sequences in sections:
        for sequence in sequences:
            module.body.append(sequence)
    module.operation.verify()
    texts = [
        "\n".join((f"// {comment}", *(sequence.get_asm(use_local_scope=True) for sequence in sequences)))
        for comment, sequences in sections
    ]
    body = textwrap.indent("\n\n".join(texts), "  ")
    return f"module attributes {{transform.with_named_sequence}} {{\n{body}\n}}\n"

"""Tuned configurations as a file: `configurations.mlir`, which the passes in Python and in C++ both read.

It is a module of MLIR with one empty module per task. All of it is in attributes:

    module attributes {felix.compiler = "...", felix.format = 1, felix.model = "...", felix.model_flags = [...],
                       felix.target = "...", felix.target_flags = [...]} {
      module @TASK attributes {felix.form = "...", felix.lowering_configs = [...], felix.translation_info = ...,
                               felix.workgroups = N} {}
    }

A result that rewrites ops has `felix.rewrites = ["ROOT", ...]` too, and the script that does so in a file beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from iree.compiler import ir

from felix_mlir.atomic import replacing
from felix_mlir.errors import RequestError
from felix_mlir.passes.extract_tasks import ExtractedTask
from felix_mlir.passes.rewrites import Rewrites, missing_roots
from felix_mlir.schedule import ConfigurationAttributes

FILE_NAME = "configurations.mlir"
REWRITES_FILE_NAME = "rewrites.mlir"
_FORMAT = 1


@dataclass(frozen=True)
class TunedTask:
    """The configuration of one task.

    `form` is the canonical form of the dispatches it is for. `workgroups` is how many workgroups generated code must
    launch if the configuration took effect, None where that is not known.
    """

    id: str
    form: str
    attributes: ConfigurationAttributes
    workgroups: int | None = None


@dataclass(frozen=True)
class Tuned:
    """A tuning result to compile with.

    `model` says what it was tuned on, `compiler` with which version of iree-base-compiler. `target_flags` and
    `model_flags` are those of iree-compile that select `target` and that the configurations were tuned with. The tasks
    are those of the model as `rewrites` leave it.
    """

    model: str
    target: str
    compiler: str
    target_flags: tuple[str, ...]
    model_flags: tuple[str, ...]
    tasks: tuple[TunedTask, ...]
    rewrites: Rewrites | None = None


def configurations_file(path: Path) -> Path:
    """Return the configurations.mlir of a result, named by itself or by its folder."""
    return path / FILE_NAME if path.is_dir() else path


def rewrites_file(configurations: Path) -> Path:
    """Return where the rewrites of a result are: `STEM.rewrites.mlir` beside `STEM.configurations.mlir`."""
    name = configurations.name
    stem = name.removesuffix(FILE_NAME) if name.endswith(FILE_NAME) else f"{name}."
    return configurations.with_name(stem + REWRITES_FILE_NAME)


def read_tuned(path: Path, compiler: str) -> Tuned:
    """Read a result folder or its configurations.mlir, made with version `compiler` of iree-base-compiler.

    Raises RequestError for anything else.
    """
    file = configurations_file(path)
    if not file.is_file():
        raise RequestError(f"{path} holds no tuning result: run felix-mlir tune MODEL --out {path}")
    with ir.Context() as context, ir.Location.unknown():
        # What is wrong with the file is said in one line instead.
        context.attach_diagnostic_handler(lambda _: True)
        try:
            module = ir.Module.parse(file.read_text(), context).operation
            written_format = ir.IntegerAttr(module.attributes["felix.format"]).value
        except (ir.MLIRError, UnicodeDecodeError, KeyError, ValueError) as error:
            raise RequestError(f"{file} is damaged or no result of felix-mlir: tune again") from error
        if written_format != _FORMAT:
            raise RequestError(f"{file} was written by another version of felix-mlir: tune again")
        try:
            tuned = _read(module)
            roots = _read_roots(module)
        except (KeyError, ValueError, TypeError) as error:
            raise RequestError(f"{file} is damaged: tune again") from error
        if tuned.compiler != compiler:
            raise RequestError(f"{path} was tuned with iree-base-compiler {tuned.compiler}, not {compiler}: tune again")
        if roots is None:
            return tuned
        return replace(tuned, rewrites=Rewrites(roots, _read_script(rewrites_file(file), roots, context)))


def write_tuned(tuned: Tuned, path: Path) -> None:
    """Write a result where `read_tuned` finds it, whole or not at all; `path` is the file of configurations."""
    script = rewrites_file(path)
    if tuned.rewrites is not None:
        with replacing(script) as partial:
            partial.write_text(tuned.rewrites.script)
    with replacing(path) as partial:
        partial.write_text(to_text(tuned))
    if tuned.rewrites is None:
        script.unlink(missing_ok=True)


def to_text(tuned: Tuned) -> str:
    """Return what configurations.mlir holds."""
    with ir.Context():
        head = {
            "felix.compiler": _quoted(tuned.compiler),
            "felix.format": f"{_FORMAT} : i64",
            "felix.model": _quoted(tuned.model),
            "felix.model_flags": _list(map(_quoted, tuned.model_flags)),
            **({} if tuned.rewrites is None else {"felix.rewrites": _list(map(_quoted, tuned.rewrites.roots))}),
            "felix.target": _quoted(tuned.target),
            "felix.target_flags": _list(map(_quoted, tuned.target_flags)),
        }
        return _file(head, {task.id: _task_entries(task) for task in tuned.tasks})


def tasks_text(tasks: Sequence[ExtractedTask]) -> str:
    """Return the tasks of a module in the same form: each with the configuration it has and `felix.executables`."""
    with ir.Context():
        entries = {
            task.executables[0]: {
                "felix.executables": _list(map(_quoted, task.executables)),
                **_configuration_entries(task.form, task.attributes),
            }
            for task in tasks
        }
        return _file({"felix.format": f"{_FORMAT} : i64"}, entries)


def _task_entries(task: TunedTask) -> dict[str, str]:
    entries = _configuration_entries(task.form, task.attributes)
    return entries if task.workgroups is None else {**entries, "felix.workgroups": f"{task.workgroups} : i64"}


def _configuration_entries(form: str, attributes: ConfigurationAttributes) -> dict[str, str]:
    return {
        "felix.form": _quoted(form),
        "felix.lowering_configs": _list(attributes.lowering_configs),
        "felix.translation_info": attributes.translation_info,
    }


def _file(head: Mapping[str, str], tasks: Mapping[str, Mapping[str, str]]) -> str:
    modules = "".join(
        f"  module @{_quoted(name)} attributes {{{_entries(entries, 4)}}} {{\n  }}\n" for name, entries in tasks.items()
    )
    return f"module attributes {{{_entries(head, 2)}}} {{\n{modules}}}\n"


def _entries(entries: Mapping[str, str], indent: int) -> str:
    return ",".join(f"\n{' ' * indent}{name} = {value}" for name, value in entries.items())


def _list(texts: Sequence[str] | map[str]) -> str:
    return f"[{', '.join(texts)}]"


def _quoted(text: str) -> str:
    return str(ir.StringAttr.get(text))


def _read(module: ir.Operation) -> Tuned:
    head = module.attributes
    return Tuned(
        model=_string(head["felix.model"]),
        target=_string(head["felix.target"]),
        compiler=_string(head["felix.compiler"]),
        target_flags=tuple(map(_string, ir.ArrayAttr(head["felix.target_flags"]))),
        model_flags=tuple(map(_string, ir.ArrayAttr(head["felix.model_flags"]))),
        tasks=tuple(_read_task(op.operation) for op in module.regions[0].blocks[0]),
    )


def _read_roots(module: ir.Operation) -> tuple[str, ...] | None:
    head = module.attributes
    return tuple(map(_string, ir.ArrayAttr(head["felix.rewrites"]))) if "felix.rewrites" in head else None


def _read_script(file: Path, roots: Sequence[str], context: ir.Context) -> str:
    """Return the script of a result's rewrites; raises RequestError if it cannot be one."""
    if not file.is_file():
        raise RequestError(f"{file} is missing: tune again")
    try:
        script = file.read_text()
        missing = missing_roots(ir.Module.parse(script, context).operation, roots)
    except (ir.MLIRError, UnicodeDecodeError) as error:
        raise RequestError(f"{file} is damaged: tune again") from error
    if missing:
        raise RequestError(f"{file} is damaged: tune again")
    return script


def _read_task(op: ir.Operation) -> TunedTask:
    attributes = op.attributes
    return TunedTask(
        id=_string(attributes["sym_name"]),
        form=_string(attributes["felix.form"]),
        attributes=ConfigurationAttributes(
            str(attributes["felix.translation_info"]),
            tuple(map(str, ir.ArrayAttr(attributes["felix.lowering_configs"]))),
        ),
        workgroups=ir.IntegerAttr(attributes["felix.workgroups"]).value if "felix.workgroups" in attributes else None,
    )


def _string(attribute: ir.Attribute) -> str:
    return ir.StringAttr(attribute).value

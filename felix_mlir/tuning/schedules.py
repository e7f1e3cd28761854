"""The transform scripts of a result: schedules.mlir for a reader, tuning_spec.mlir for a stock iree-compile."""

from __future__ import annotations

from collections.abc import Sequence

from felix_mlir.passes.rewrites import SPEC_FLAG
from felix_mlir.passes.tuned import REWRITES_FILE_NAME
from felix_mlir.passes.tuning_spec import SpecTask, tuning_spec
from felix_mlir.symbolic import structure_of, tuning_script
from felix_mlir.tasks import Task
from felix_mlir.tuning.finish import Result


def schedules_text(tasks: Sequence[Task], result: Result) -> str:
    """Return the scripts of what the winner is made with: the rewrites of ops, and a schedule a tuned task.

    Schedules have their knobs open, with the sizes chosen. One module each, `// -----` between them.
    """
    scripts: list[str] = []
    if (rewrites := result.build.tuned.rewrites) is not None:
        scripts.append(f"// Rewrites of {len(rewrites.roots)} ops, before dispatches are formed.\n{rewrites.script}")
    for task in tasks if result.winner == "tuned" else ():
        choice = result.choices.get(task.id)
        if task.tunable is None or choice is None or choice.candidate is None:
            continue
        candidate = choice.candidate
        template = next(t for t in task.tunable.templates if t.name == candidate.template)
        structure = structure_of(template, candidate.values)
        sizes = "x".join(map(str, task.iteration_space))
        head = f"// Task {task.id}: {task.kind} {sizes} {task.element_types}, template {template.name}.\n"
        scripts.append(head + tuning_script(template, structure=structure, chosen=candidate.values))
    return "\n// -----\n\n".join(scripts)


def spec_text(tasks: Sequence[Task], result: Result) -> str:
    """Return the transform library that makes iree-compile choose what the winner has."""
    tuned, programs = result.build.tuned, {task.id: task.tunable for task in tasks}
    found = [
        SpecTask(task.id, tunable.configured.read_text(), task.attributes)
        for task in tuned.tasks
        if (tunable := programs[task.id]) is not None
    ]
    rewriting = () if tuned.rewrites is None else (f"{SPEC_FLAG}={REWRITES_FILE_NAME}",)
    return tuning_spec(found, (*tuned.target_flags, *tuned.model_flags, *rewriting)).text

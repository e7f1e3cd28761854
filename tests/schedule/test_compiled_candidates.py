"""What the templates promise of real code: candidates compile, and compute what the default computes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from configured import CPU
from ops import KINDS

from felix_mlir.compiler.process import run_compiler, tool_path
from felix_mlir.importers import random_inputs
from felix_mlir.measure import Program, Runner, Status, Timing, save_arrays
from felix_mlir.schedule import LegalSpace, with_configuration
from felix_mlir.tuning.programs import task_tolerance

PER_KIND = 3


def compile_configured(program: Path) -> bool:
    command = [tool_path("iree-compile"), str(program), "--compile-from=executable-configurations"]
    return run_compiler([*command, *CPU.compile_flags, "-o", str(program.with_suffix(".vmfb"))], 120).ok


def test_candidates_of_every_kind_compile_and_equal_the_default(tasks_of, tmp_path):
    """At least 95 % of drawn candidates compile; every one that does gives the default's numbers."""
    programs: list[tuple[str, object, Path]] = []
    for kind in sorted(KINDS):
        task = tasks_of(kind).root.tunable
        text = task.configured.read_text()
        (default := tmp_path / f"{kind}-default.mlir").write_text(text)
        programs.append((kind, task, default))
        for template in task.templates:
            for index, values in enumerate(LegalSpace(template).draw(PER_KIND, np.random.default_rng(7))):
                path = tmp_path / f"{kind}-{template.name}-{index}.mlir"
                path.write_text(with_configuration(text, template.configuration(values)))
                programs.append((kind, task, path))
    with ThreadPoolExecutor(CPU.cores) as pool:
        compiled = list(pool.map(compile_configured, [path for _, _, path in programs]))
    assert sum(compiled) >= 0.95 * len(programs), [
        p.name for (_, _, p), ok in zip(programs, compiled, strict=True) if not ok
    ]
    wrong: list[str] = []
    with Runner(CPU.device) as runner:
        for (kind, task, path), ok in zip(programs, compiled, strict=True):
            inputs, expected = tmp_path / f"{kind}.in.npz", tmp_path / f"{kind}.out.npz"
            is_default = path.stem.endswith("-default")
            if is_default:
                assert ok, path.name
                save_arrays(inputs, "arg", list(random_inputs([(i.shape, i.dtype) for i in task.inputs], 1)))
            if ok:
                program = Program(
                    path.with_suffix(".vmfb"), inputs, expected=None if is_default else expected,
                    tolerance=task_tolerance(task),
                )  # fmt: skip
                result = runner.measure(program, Timing(0.001, 1), 60, expected if is_default else None)
                if result.status is not Status.OK:
                    wrong.append(f"{path.name}: {result.status} {result.message}")
    assert wrong == []

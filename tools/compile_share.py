"""Share of drawn candidates that compile, per op kind of the tests.

python tools/compile_share.py [--draws 60] [--seed 0] [KIND ...]

Every draw is legal by the constraints; a failure is a constraint that is missing. Prints one line a kind with
the first failure's message, and the total.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from configured import CPU, write_flow
from ops import KINDS

from felix_mlir.compiler.parallel import run_parallel
from felix_mlir.compiler.process import BuildOutcome, run_compiler, tool_path
from felix_mlir.schedule import Configuration, LegalSpace, with_configuration
from felix_mlir.tasks import TunableTask, extract_tasks

TIMEOUT_S = 60.0


def compile_candidate(task: TunableTask, configuration: Configuration, path: Path) -> BuildOutcome:
    path.write_text(with_configuration(task.configured.read_text(), configuration))
    command = [tool_path("iree-compile"), str(path), "--compile-from=executable-configurations", *CPU.compile_flags]
    return run_compiler([*command, "-o", str(path.with_suffix(".vmfb"))], TIMEOUT_S)


def share_of_kind(kind: str, draws: int, seed: int, folder: Path) -> tuple[int, int]:
    """Compile `draws` candidates of each template of each task of a kind; returns how many compiled, and all."""
    outcomes: list[BuildOutcome] = []
    for task in extract_tasks(write_flow(KINDS[kind], folder), CPU, folder / "tasks"):
        for template in task.tunable.templates if task.tunable else ():
            drawn = LegalSpace(template).draw(draws, np.random.default_rng(seed))
            calls = [
                partial(compile_candidate, task.tunable, template.configuration(values), folder / f"{index}.mlir")
                for index, values in enumerate(drawn)
            ]
            outcomes += run_parallel(CPU.cores, calls)
    compiled = sum(outcome.ok for outcome in outcomes)
    failure = next((f"{outcome.status}: {outcome.message}" for outcome in outcomes if not outcome.ok), "")
    print(f"{kind:22s} {compiled:4d} of {len(outcomes):4d}  {failure[:160]}", flush=True)
    return compiled, len(outcomes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    total = np.zeros(2, dtype=int)
    for kind in options.kinds:
        with tempfile.TemporaryDirectory(prefix="felix-share-") as folder:
            total += share_of_kind(kind, options.draws, options.seed, Path(folder))
    print(f"{total[0]} of {total[1]} compiled: {total[0] / total[1]:.2%}")


if __name__ == "__main__":
    main()

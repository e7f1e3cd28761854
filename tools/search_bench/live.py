"""Tuning ops live: every searcher with the same budget, its result beside IREE's default, -O3 and eager torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from beside_torch import TOLERANCE, in_torch, torch_runner

from felix_mlir.apply import DEFAULT, variants
from felix_mlir.compiler.process import run_compiler, tool_path
from felix_mlir.errors import WorkError
from felix_mlir.measure import Measurement, Program, Status, Timing, save_arrays
from felix_mlir.options import TuneOptions
from felix_mlir.report import Report, SilentProgress
from felix_mlir.search import find_searcher
from felix_mlir.search.tpe import load_optuna
from felix_mlir.target import Target, parse_target
from felix_mlir.tuning import run_tuning
from search_bench.words import in_words

if TYPE_CHECKING:  # torch takes seconds to import: the process of a tuning run that needs it has to pay for it itself.
    from six_ops import Op

BASELINES = ("default", "O3", "torch")
# Of each program, a tenth of a second a turn.
TURNS = Timing(min_time_s=2.1, repetitions=21)
_COMPILE_TIMEOUT_S = 300.0
_RUN_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Tuned:
    """One tuning run of an op; `wall_s` is what all of it took in a process of its own, imports of felix_mlir aside."""

    searcher: str
    seed: int
    report: Report
    wall_s: float

    @property
    def name(self) -> str:
        return f"{self.searcher}/{self.seed}"

    @property
    def search_share(self) -> float:
        """The part of the run's wall time that search, features and cost model took."""
        return self.report["search_s"] / self.wall_s

    @property
    def task_speedup(self) -> float | None:
        """How much faster tile sizes alone made the isolated tasks; None when none was tuned."""
        tasks = [(t["count"], t["default_us"], t["tuned_us"]) for t in self.report["tasks"]]
        timed = [(n * before, n * after) for n, before, after in tasks if before is not None and after is not None]
        return sum(before for before, _ in timed) / sum(after for _, after in timed) if timed else None


@dataclass(frozen=True)
class OpResult:
    """`measured` are the baselines and every run by its name, timed in turn: samples i are of about the same time."""

    op: str
    runs: tuple[Tuned, ...]
    measured: Mapping[str, Measurement]


@dataclass
class Live:
    """`errors` has a line for whatever is missing from `ops`."""

    ops: list[OpResult] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def check_searchers(names: Sequence[str]) -> None:
    """Raise RequestError for a searcher there is not, or whose package is not installed."""
    for name in names:
        find_searcher(name)
    if "tpe" in names:
        load_optuna()


def run_live(
    ops: Mapping[str, Op],
    searchers: Sequence[str],
    seeds: int,
    tuning: TuneOptions,
    say: Callable[[str], None],
    timing: Timing = TURNS,
) -> Live:
    """Tune every op with every searcher and `seeds` seeds, each time as `tuning` says, in folders of `tuning.out`."""
    live = Live()
    for number, (name, op) in enumerate(ops.items(), start=1):
        say(f"{number} of {len(ops)}: {name}")
        folder = tuning.out / name
        folder.mkdir(parents=True)
        (source := folder / "op.mlir").write_text(op.mlir)
        try:
            runs = _tune_all(source, searchers, seeds, replace(tuning, out=folder), live.errors, say)
            measured = _measure(name, op, source, runs, parse_target(tuning.target), timing)
        except Exception as error:  # one op that fails must not lose the others' results
            live.errors.append(f"{name}: {in_words(error)}")
            continue
        live.ops.append(OpResult(name, tuple(runs.values()), measured))
        failed = {program: found for program, found in measured.items() if found.status is not Status.OK}
        live.errors += [f"{name}: {program}: {found.status}: {found.message}" for program, found in failed.items()]
    return live


def _tune_all(
    source: Path,
    searchers: Sequence[str],
    seeds: int,
    tuning: TuneOptions,
    errors: list[str],
    say: Callable[[str], None],
) -> dict[Path, Tuned]:
    """Return the runs that ended well, by their folder."""
    runs: dict[Path, Tuned] = {}
    for seed in range(seeds):
        for searcher in searchers:
            options = replace(tuning, out=tuning.out / f"{searcher}-{seed}", search=searcher, seed=seed)
            try:
                # A fresh process, as a user's command is: what a searcher has to import and load is part of its time.
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    report, wall_s = pool.submit(_tune, source, options).result()
            except Exception as error:  # nor may one searcher lose those of the other searchers
                errors.append(f"{source.parent.name}: {searcher}, seed {seed}: {in_words(error)}")
                say(f"  {errors[-1]}")
                continue
            run = runs[options.out] = Tuned(searcher, seed, report, wall_s)
            say(
                f"  {run.name}: {report['speedup']:.2f}x after {report['trials']} candidates in {wall_s:.0f} s, "
                f"{run.search_share:.0%} of it searching"
            )
    return runs


def _tune(source: Path, options: TuneOptions) -> tuple[Report, float]:
    begun = time.perf_counter()
    report = run_tuning(source, options, SilentProgress())
    return report, time.perf_counter() - begun


def _measure(
    name: str, op: Op, source: Path, runs: Mapping[Path, Tuned], target: Target, timing: Timing
) -> dict[str, Measurement]:
    """Time the baselines and the results of all runs in turn, each checked against torch; raises WorkError."""
    folder = source.parent
    arrays = op.inputs()
    inputs, expected = folder / "inputs.npz", folder / "expected.npz"
    save_arrays(inputs, "arg", arrays)
    save_arrays(expected, "out", [op.eager(arrays)().numpy()])
    default = compile_op(source, target)
    program = Program(default, inputs, expected=expected, tolerance=TOLERANCE)
    programs = {
        "default": program,
        "O3": replace(program, vmfb=compile_op(source, target, "O3")),
        "torch": in_torch(program, name),
        **{run.name: replace(program, vmfb=out / "tuned.vmfb") for out, run in runs.items()},
    }
    with torch_runner(target.device) as runner:
        measured = runner.measure_interleaved(list(programs.values()), timing, _RUN_TIMEOUT_S)
    return dict(zip(programs, measured, strict=True))


def compile_op(source: Path, target: Target, alternative: str = DEFAULT.name) -> Path:
    """Compile a module by iree-compile alone, one of the whole-model ways, beside it; raises WorkError."""
    output = source.with_name(f"{alternative}.vmfb")
    flags = (*target.compile_flags, *next(a.flags for a in variants(DEFAULT) if a.name == alternative))
    outcome = run_compiler((tool_path("iree-compile"), str(source), *flags, "-o", str(output)), _COMPILE_TIMEOUT_S)
    if not outcome.ok:
        raise WorkError(f"iree-compile rejects {source.name} ({alternative}): {outcome.message}")
    return output

"""`felix-mlir bundle`: candidates to measure on another machine, and their results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from felix_mlir.options import TuneOptions

bundle = typer.Typer(help="Measure on another machine, which needs no felix-mlir.", no_args_is_help=True)


@bundle.command()
def make(
    model: Annotated[str, typer.Argument(help="What felix-mlir tune takes.")],
    output: Annotated[Path, typer.Option("-o", help="The bundle to write: .tar.zst, .tar.xz or .tar.")],
    candidates: Annotated[int, typer.Option(min=1, help="Candidates per task, the compiler's default included.")] = 64,
    target: Annotated[str, typer.Option(help="What to compile for: cpu, or cuda:sm_80 and such.")] = TuneOptions.target,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = TuneOptions.seed,
) -> None:
    """Compile candidates of every task of a model into one file; nothing is measured."""
    from felix_mlir.bundle import make_bundle
    from felix_mlir.report import terminal_progress

    with terminal_progress() as progress:
        made = make_bundle(model, target, candidates, seed, output, progress)
    total = sum(made.candidates.values())
    print(f"{output}: {total} candidates of {len(made.candidates)} tasks, {output.stat().st_size / 1e6:.1f} MB")
    for id_, reason in made.left_out.items():
        print(f"note: task {id_} is left out: {reason}", file=sys.stderr)
    print(
        "where the device is, with pip install iree-base-runtime:\n"
        f"  tar -xf {output.name} run_bundle.py && python run_bundle.py {output.name} -o results.jsonl"
    )


@bundle.command()
def read(
    results: Annotated[Path, typer.Argument(help="What run_bundle.py wrote.")],
    db: Annotated[Path, typer.Option(help="Record store to add them to; it is made if it is not there.")],
) -> None:
    """Add what was measured elsewhere to a record store; reading the same twice adds nothing."""
    from felix_mlir.bundle import read_results
    from felix_mlir.records import Store

    with Store(db) as store:
        imported = read_results(results, store)
    for problem in imported.problems:
        print(f"note: {problem}", file=sys.stderr)
    print(f"{db}: {imported.added} records added, {imported.known} known")

"""`felix-mlir`: commands and the meaning of the exit status."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from felix_mlir.cli.bundle import bundle
from felix_mlir.errors import FelixError, WorkError
from felix_mlir.options import TuneOptions, choose_budget

app = typer.Typer(
    name="felix-mlir",
    help="Make models compiled by IREE faster: tile sizes searched and measured on the machine at hand.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Model = Annotated[
    str,
    typer.Argument(help="A .mlir, .mlirbc or .pt2 file, or file.py:function, or package.module:function."),
]
TargetName = Annotated[str, typer.Option("--target", help="What to compile for: cpu, or cuda:sm_80 and such.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]

# Heavy imports wait until a command needs them: `felix-mlir --help` must answer at once.


@app.command()
def tune(
    model: Model,
    target: TargetName = TuneOptions.target,
    budget: Annotated[
        str | None,
        typer.Option(help="Wall-clock time for everything: 30s, 7m, 1h. [default: 7m unless --trials]"),
    ] = None,
    trials: Annotated[int | None, typer.Option(min=0, help="Number of candidates to measure.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results; an earlier run in it is continued.")] = Path(
        "tuned"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = TuneOptions.seed,
    search: Annotated[
        str, typer.Option(help="How candidates are chosen: gradient, evolutionary, random or tpe.")
    ] = TuneOptions.search,
    db: Annotated[Path | None, typer.Option(help="Record store to use in place of OUT/records.db.")] = None,
    no_measure: Annotated[
        bool, typer.Option("--no-measure", help="Choose by what the record store knows, else by the cost model.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tune a model on this machine and write the faster module."""
    from felix_mlir.report import show, terminal_progress
    from felix_mlir.tuning import run_tuning

    options = TuneOptions(out, target, choose_budget(budget, trials), trials, seed, search, db, not no_measure)
    try:
        with terminal_progress() as progress:
            report = run_tuning(model, options, progress)
    except KeyboardInterrupt:
        raise WorkError("interrupted: what was measured is kept, and the same command goes on from there") from None
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        show(report)
        print(f"results: {out}")


@app.command()
def tasks(model: Model, target: TargetName = TuneOptions.target, as_json: Json = False) -> None:
    """List what there is to tune in a model, how often it runs and its share of the run time."""
    from felix_mlir.cli.tasks import list_tasks, show_tasks

    found = list_tasks(model, target)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        show_tasks(found)


@app.command("compile")
def compile_(
    model: Model,
    tuned: Annotated[Path, typer.Option(help="Folder of an earlier felix-mlir tune.")],
    output: Annotated[Path, typer.Option("-o", help="The compiled module to write.")],
    target: TargetName = TuneOptions.target,
    check_spec: Annotated[
        bool,
        typer.Option("--check-spec", help="Compile with iree-compile itself and tuning_spec.mlir; say what landed."),
    ] = False,
) -> None:
    """Compile a model with an earlier result; nothing is measured."""
    from felix_mlir.apply import compile_by_spec, compile_tuned

    if check_spec:
        landings = compile_by_spec(model, target, tuned, output)
        print(*(line for landing in landings for line in landing.lines()), sep="\n")
        lost = [landing.subject for landing in landings if not landing.has_landed]
        if lost:
            raise WorkError(f"{output}: of {len(landings)} choices these did not land: {', '.join(lost)}")
        print(f"{output}: all {len(landings)} choices landed")
        return
    applied = compile_tuned(model, target, tuned, output)
    print(f"{output}: {len(applied.landed)} tuned tasks landed")
    for id_, why in applied.missing.items():
        print(f"note: task {id_} {why}", file=sys.stderr)
    if applied.parameters is not None:
        print(f"run it with --parameters=model={applied.parameters}")


@app.command()
def bench(
    modules: Annotated[list[Path], typer.Argument(help="A result folder, or two .vmfb files to compare.")],
    as_json: Json = False,
) -> None:
    """Time two modules in turn and say whether the second is faster."""
    from felix_mlir.cli.bench import compare_modules

    result = compare_modules(modules)
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        print(
            f"{result['first']}: {result['first_ms']:.3f} ms (spread {result['first_spread']:.1%})\n"
            f"{result['second']}: {result['second_ms']:.3f} ms (spread {result['second_spread']:.1%})\n"
            f"the second is {result['verdict']}: {result['speedup']:.3f}x, "
            f"95 % interval {result['interval'][0]:.3f}x to {result['interval'][1]:.3f}x"
        )


TaskId = Annotated[str, typer.Option("--task", help="The id that felix-mlir tasks prints.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Fix a knob: name=size. May be repeated.")]


@app.command()
def schedule(
    model: Model,
    task: TaskId,
    settings: Settings = None,
    apply: Annotated[bool, typer.Option("--apply", help="Print the tiled IR instead of the script.")] = False,
    target: TargetName = TuneOptions.target,
    as_json: Json = False,
) -> None:
    """Print a task's transform script, or the loops it makes: symbolic in the knobs that are not set."""
    from felix_mlir.cli.schedule import list_schedule, schedule_script, tiled_ir
    from felix_mlir.cli.settings import read_settings
    from felix_mlir.tuning.inspect import find_task, read_tasks

    fixed = read_settings(settings or [])
    with tempfile.TemporaryDirectory(prefix="felix-mlir-") as folder:
        found = find_task(read_tasks(model, target, Path(folder)), task)
        if as_json:
            print(json.dumps(list_schedule(found, fixed), indent=2))
        else:
            print(tiled_ir(found, fixed) if apply else schedule_script(found, fixed))


@app.command()
def features(
    model: Model,
    task: TaskId,
    settings: Settings = None,
    target: TargetName = TuneOptions.target,
    as_json: Json = False,
) -> None:
    """Print a task's features: expressions with units, or their values and gradients at given knobs."""
    from felix_mlir.cli.features import describe_task, show_features
    from felix_mlir.tuning.inspect import find_task, read_tasks

    with tempfile.TemporaryDirectory(prefix="felix-mlir-") as folder:
        described = describe_task(find_task(read_tasks(model, target, Path(folder)), task), settings or [])
    if as_json:
        print(json.dumps(described, indent=2))
    else:
        show_features(described)


@app.command()
def explain(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of an earlier felix-mlir tune.")],
    task: Annotated[str | None, typer.Option("--task", help="One of its tasks. [default: all]")] = None,
    as_json: Json = False,
) -> None:
    """Say why a run chose its schedules: predictions, bounds, constraints, gradients, and what the default lost."""
    from felix_mlir.cli.explain import explain_folder, show_explanation

    explanation = explain_folder(directory, task)
    if as_json:
        print(json.dumps(explanation, indent=2))
    else:
        show_explanation(explanation)


dataset = typer.Typer(help="Measured candidates of many ops: what the cost model learns from.", no_args_is_help=True)
app.add_typer(dataset, name="dataset")
app.add_typer(bundle, name="bundle")


@dataset.command()
def collect(
    out: Annotated[Path, typer.Option(help="Folder of the tables; an earlier collection in it is continued.")],
    ops: Annotated[
        list[str] | None, typer.Option("--op", help="Op of the suite, or a pattern such as 'conv*'. [default: all]")
    ] = None,
    suite: Annotated[str, typer.Option(help="main, or variety: many shapes, meant for few points each.")] = "main",
    points: Annotated[int, typer.Option(min=1, help="Candidates to measure per op.")] = 400,
    search: Annotated[str, typer.Option(help="The searcher that chooses them.")] = "random",
    lattice: Annotated[bool, typer.Option("--lattice", help="Measure every point of a lattice instead.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the choice.")] = 0,
    target: TargetName = TuneOptions.target,
) -> None:
    """Measure candidates of the suite's ops; nothing else may run on the machine meanwhile."""
    from felix_mlir.dataset.collect import collect as run
    from felix_mlir.dataset.collect import select_ops
    from felix_mlir.report import terminal_progress

    with terminal_progress() as progress:
        tables = run(
            select_ops(suite, ops or ["*"]), out, points=points, search=search, lattice=lattice, seed=seed,
            progress=progress, target_name=target,
        )  # fmt: skip
    print(f"{len(tables)} tables in {out}")


@app.command()
def train(
    tables: Annotated[Path, typer.Option("--dataset", help="Folder of tables that dataset collect wrote.")],
    output: Annotated[Path, typer.Option("-o", help="The weights to write (.safetensors).")],
    folds: Annotated[
        int,
        typer.Option(min=1, help="Parts of the tasks that take turns in being left out, to say the error; 1: none."),
    ] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the training.")] = 0,
) -> None:
    """Train the cost model that ships, or one of your own."""
    from felix_mlir.dataset.training import table_paths, train_on_tables
    from felix_mlir.report import terminal_progress

    with terminal_progress() as progress:
        model = train_on_tables(table_paths(tables), seed, folds, progress.stage)
    model.save(output)
    print(json.dumps({**model.card, "weights": str(output)}, indent=2))


def main() -> None:
    """Run the command line and exit."""
    try:
        app()
    except FelixError as error:
        print(f"felix-mlir: {error}", file=sys.stderr)
        sys.exit(error.exit_status)

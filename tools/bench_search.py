"""Compares searchers: how many measurements, and how long, until they are near the best known candidate.

python tools/bench_search.py replay --tables A.jsonl ... [--searchers gradient,evolutionary,random] [--seeds 5]
    [--holdout op|kind|both] --json out.json [--plot out.png]
python tools/bench_search.py live [--searchers gradient,evolutionary,random] [--budget 60s] [--seeds 1] --json out.json
    [--ops pattern]

`replay` needs no device: searchers choose among the candidates of recorded tables and get the recorded latency or
failure. A searcher with a pre-trained cost model gets one that was trained without the table's op, or without its kind
of op.

`live` tunes six ops on this machine, each with every searcher and the same budget, and times the results in turn with
what IREE makes of the op by itself, with and without -O3, and with eager torch.

Exit status: 0; 1 when a table, an op or a search is missing from the result; 2 for a wrong request or a file that is no
table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from search_bench import live_output
from search_bench.holdout import HOLDOUTS
from search_bench.live import check_searchers, run_live
from search_bench.output import show, write_csv, write_json
from search_bench.plot import load_pyplot, plot
from search_bench.pool import Rules
from search_bench.replay import contestants, run_replays
from search_bench.summary import summarise

from felix_mlir.dataset import read_table
from felix_mlir.errors import FelixError, RequestError
from felix_mlir.options import TuneOptions, parse_duration

ROOT = Path(__file__).parents[1]
SEARCHERS = "gradient,gradient-nopretrain,evolutionary,random,tpe"
LIVE_SEARCHERS = "gradient,evolutionary,random"


def add_replay(parser: argparse.ArgumentParser) -> None:
    rules = Rules()
    parser.add_argument("--tables", type=Path, nargs="+", required=True, help="recorded tables, one op each")
    parser.add_argument("--searchers", default=SEARCHERS, help="names, with commas between (default: %(default)s)")
    parser.add_argument("--seeds", type=positive, default=5, help="searches per table and searcher")
    parser.add_argument("--holdout", choices=[*HOLDOUTS, "both"], default="op", help="what training leaves out")
    parser.add_argument("--json", type=Path, required=True, help="everything, with CSV beside it")
    parser.add_argument("--plot", type=Path, help="best found over measurements, as PNG, SVG or PDF")
    parser.add_argument(
        "--batch", type=positive, default=rules.batch, help="proposals a round; the first round has one"
    )
    parser.add_argument("--measurements", type=positive, default=rules.measurements, help="of every search")
    parser.add_argument(
        "--limit", type=positive, default=rules.limit, help="for searches not yet within 99 %% of the best"
    )
    parser.add_argument("--start-default", action="store_true", help="begin with the compiler's choice, if recorded")
    parser.add_argument("--seconds-per-measurement", type=float, default=0.35, help="assumed (default: %(default)s)")
    parser.add_argument("--dataset", type=Path, default=ROOT / "dataset", help="folder of the tables to train on")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "bench_search", help="folder of trained models")
    parser.add_argument("--jobs", type=positive, default=2, help="processes; results do not depend on it, seconds do")
    parser.set_defaults(run=replay)


def replay(options: argparse.Namespace) -> int:
    tables = list(dict.fromkeys(options.tables))
    for path in tables:
        read_table(path)
    if options.plot:
        load_pyplot()
    holdouts = HOLDOUTS if options.holdout == "both" else (options.holdout,)
    competing = contestants(options.searchers.split(","), holdouts)
    limit = max(options.limit, options.measurements)
    rules = Rules(options.batch, options.measurements, limit, options.start_default)
    replays = run_replays(
        tables, competing, options.seeds, rules,
        dataset=options.dataset, cache=options.cache, jobs=options.jobs, say=say,
    )  # fmt: skip
    if replays.tables:
        summary = summarise(replays, options.seconds_per_measurement)
        write_json(options.json, replays, summary, {k: v for k, v in vars(options).items() if k != "run"})
        write_csv(options.json.with_suffix(".csv"), summary)
        if options.plot:
            plot(options.plot, summary, rules.measurements)
        show(summary, options.seconds_per_measurement)
    for table in replays.tables:
        if table.unresolved:
            print(f"{table.name}: {table.unresolved} of {table.rows} rows cannot be expressed here and were left out")
        if table.reachable_s > table.best_s:
            print(f"{table.name}: the best known, {1e3 * table.best_s:.4g} ms, is one of them")
    for error in replays.errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if replays.errors else 0


def add_live(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--searchers", default=LIVE_SEARCHERS, help="names, with commas between (default: %(default)s)")
    parser.add_argument("--budget", default="60s", help="of every run (default: %(default)s)")
    parser.add_argument("--seeds", type=positive, default=1, help="runs per op and searcher")
    parser.add_argument("--ops", default="*", metavar="PATTERN", help="only ops with such a name, like 'conv*'")
    parser.add_argument("--json", type=Path, required=True, help="everything")
    parser.set_defaults(run=live)


def live(options: argparse.Namespace) -> int:
    # Here, because it imports torch: the processes of tuning runs import this file, and may do without.
    from six_ops import SIX_OPS

    searchers = options.searchers.split(",")
    check_searchers(searchers)
    ops = {name: op for name, op in SIX_OPS.items() if fnmatch(name, options.ops)}
    if not ops:
        raise RequestError(f"no op is called '{options.ops}': there are {', '.join(SIX_OPS)}")
    with tempfile.TemporaryDirectory(prefix="felix-bench-") as folder:
        tuning = TuneOptions(Path(folder), budget_s=parse_duration(options.budget))
        found = run_live(ops, searchers, options.seeds, tuning, say)
    live_output.write_json(options.json, found, {k: v for k, v in vars(options).items() if k != "run"})
    live_output.show(found)
    for error in found.errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if found.errors else 0


def positive(text: str) -> int:
    """Read a number of at least 1; ValueError for anything else, which the parser words."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    add_replay(commands.add_parser("replay", help="on recorded tables, with no device"))
    add_live(commands.add_parser("live", help="six ops on this machine"))
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except FelixError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())

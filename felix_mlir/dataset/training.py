"""Training the cost model that ships: on a folder of tables, with its error on ops it has not seen."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from felix_mlir.cost import CostModel
from felix_mlir.cost.training import train
from felix_mlir.dataset.encode import EncodedTable, encode, table_machine
from felix_mlir.dataset.resolve import resolve
from felix_mlir.dataset.table import Table, read_table
from felix_mlir.errors import RequestError


@dataclass(frozen=True)
class HeldOutError:
    """How well a model does on tables of tasks it was not trained on.

    `factor` is the factor by which a prediction is off (exp of the median absolute log error), `rank_correlation`
    Spearman's, `first` the best latency over that of the schedule predicted fastest; medians over tables.
    """

    factor: float
    rank_correlation: float
    first: float


def table_paths(folder: Path) -> list[Path]:
    """Return the tables in a folder; raises RequestError when there is none."""
    found = sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")])
    if not found:
        raise RequestError(f"{folder} has no tables (*.jsonl, *.jsonl.gz): make them with felix-mlir dataset collect")
    return found


def train_on_tables(paths: Sequence[Path], seed: int, folds: int, say: Callable[[str], None]) -> CostModel:
    """Train on all tables; with `folds` > 1 also measure the error on held-out tasks, for the model's card.

    Raises RequestError for a file that is no table.
    """
    tables = [read_table(path) for path in paths]
    encoded: list[EncodedTable] = []
    with tempfile.TemporaryDirectory(prefix="felix-mlir-") as folder:
        for number, table in enumerate(tables, start=1):
            say(f"deriving the features of {table.name} ({number} of {len(tables)})")
            encoded.append(encode(resolve(table, Path(folder) / f"{number}"), table_machine(table)))
    card = _card(tables, encoded, seed)
    if folds > 1:
        card["held_out"] = asdict(held_out_error(encoded, seed, folds, say))
    say(f"training on {card['points']} candidates of {len(card['ops'])} ops")
    return train(encoded, seed, card)


def held_out_error(
    tables: Sequence[EncodedTable], seed: int, folds: int, say: Callable[[str], None] = lambda line: None
) -> HeldOutError:
    """Cross-validate by task: every table is predicted by a model that saw no table of its task."""
    tasks = sorted({table.task for table in tables})
    fold_of = dict(zip(np.random.default_rng(seed).permutation(tasks), np.arange(len(tasks)) % folds, strict=True))
    errors: list[HeldOutError] = []
    for fold in range(folds):
        say(f"training without part {fold + 1} of {folds} of the tasks, to see the error on it")
        model = train([table for table in tables if fold_of[table.task] != fold], seed)
        errors += [error_of(model, table) for table in tables if fold_of[table.task] == fold]
    medians = np.median([[e.factor, e.rank_correlation, e.first] for e in errors], axis=0)
    return HeldOutError(*(float(median) for median in medians))


def error_of(model: CostModel, table: EncodedTable) -> HeldOutError:
    """Compare predictions with what was measured."""
    with torch.no_grad():
        predicted = (table.inputs.log_bound + model.network(table.inputs)).mean(dim=0).numpy()
    truth = table.log_latency.numpy()
    a, b = (np.argsort(np.argsort(values, kind="stable")) for values in (predicted, truth))
    return HeldOutError(
        factor=float(np.exp(np.median(np.abs(predicted - truth)))),
        rank_correlation=float(np.mean((a - a.mean()) * (b - b.mean())) / b.var()),
        first=float(np.exp(truth.min() - truth[predicted.argmin()])),
    )


def _card(tables: Sequence[Table], encoded: Sequence[EncodedTable], seed: int) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "ops": sorted({table.name for table in tables}),
        "points": sum(len(table.log_latency) for table in encoded),
        "hosts": sorted({table.host for table in tables}),
        "compilers": sorted({table.compiler for table in tables}),
        "targets": sorted({table.target for table in tables}),
        "seed": seed,
    }

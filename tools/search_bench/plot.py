"""Drawing a comparison: how good the best found is after so many measurements."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np

from felix_mlir.errors import RequestError
from search_bench.metrics import geometric_mean
from search_bench.summary import Summary


def load_pyplot() -> ModuleType:
    """Import matplotlib for files alone; raises RequestError where the extra `bench` is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise RequestError("--plot needs matplotlib: pip install 'felix-mlir[bench]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def plot(path: Path, summary: Summary, measurements: int) -> None:
    """Draw the geometric mean over tables of best known over best found; bands are the range over seeds."""
    pyplot = load_pyplot()
    counts = np.arange(1, measurements + 1)
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for contestant in summary.overall:
        of = [search for search in summary.searches if search.contestant == contestant]
        lines = np.array([
            [geometric_mean(s.curve.percent_after(int(n)) for s in of if s.seed == seed) for n in counts]
            for seed in dict.fromkeys(s.seed for s in of)
        ])  # fmt: skip
        (line,) = axes.plot(counts, np.exp(np.log(lines).mean(axis=0)), label=str(contestant))
        axes.fill_between(counts, lines.min(axis=0), lines.max(axis=0), color=line.get_color(), alpha=0.15, linewidth=0)
    ticks = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if n <= measurements]
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(n) for n in ticks])
    axes.set_xlabel("measurements")
    axes.set_ylabel("best known over best found, %")
    axes.set_title(f"geometric mean over {len(summary.per_table)} tables; bands: range over seeds", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    pyplot.close(figure)

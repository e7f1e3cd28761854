"""Tunes whole models and times the results in turn with what IREE makes of them by default, and with eager torch.

python tools/model_table.py [MODEL ...] [--budget 5m] [--out build/model_table] [--measured-only]

MODEL is the name of a file in examples/models, or FILE:FUNCTION; without one it is each of resnet50, mobilenet_v2,
dcgan and r3d18. What `felix-mlir tune` finds lies in OUT/MODEL, the table, with every sample, in OUT/model_table.json.
Torch gets as many threads as IREE: one a core. Keep the machine quiet.

Exit status: 0; 1 when a model is missing from the table, or a program of it is wrong; 2 for a wrong request.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from beside_torch import TOLERANCE, in_torch, provenance, torch_runner
from rich.table import Table

from felix_mlir.errors import FelixError, RequestError, WorkError
from felix_mlir.importers.python_function import call_function
from felix_mlir.importers.tensors import tensor_to_numpy
from felix_mlir.measure import MIN_PAIRS, Comparison, Measurement, Program, Status, Timing, compare, save_arrays
from felix_mlir.options import parse_duration
from felix_mlir.report import wide_console
from felix_mlir.target import host_name, parse_target

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "models"
MODELS = ("resnet50", "mobilenet_v2", "dcgan", "r3d18")
PROGRAMS = ("default", "tuned", "torch")
CPU = parse_target("cpu")
_PACKAGES = ("felix-mlir", "iree-base-compiler", "iree-base-runtime", "torch-mlir", "torch", "numpy")
# A turn takes a tenth of a second of each program, or one run if that is longer.
TURNS = 21
TURN_S = 0.1
# A slow model gets fewer turns, as many as its modules run in this time, but MIN_PAIRS at least.
_MODEL_S = 300.0
_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class Row:
    """A model's `programs`, those of PROGRAMS, timed in turn: samples i of all are of about the same time."""

    model: str
    programs: Mapping[str, Measurement]

    @property
    def error(self) -> float | None:
        """The largest relative error of the result's outputs, against torch."""
        return self.programs["tuned"].error

    def gain_over(self, name: str) -> Comparison | None:
        """Return how many times faster the result is than another program; None when one of them was not timed."""
        other, tuned = self.programs[name], self.programs["tuned"]
        is_timed = other.status is Status.OK and tuned.status is Status.OK
        return compare(other.samples, tuned.samples) if is_timed else None


def run(sources: Mapping[str, str], budget: str, out: Path, measured_only: bool) -> tuple[list[Row], list[str]]:
    """Tune and time each model; returns a row per model, and a line for whatever is missing or wrong."""
    rows: list[Row] = []
    errors: list[str] = []
    for number, (model, source) in enumerate(sources.items(), start=1):
        print(f"{number} of {len(sources)}: {model}", file=sys.stderr, flush=True)
        folder = out / model.replace(":", "-")
        try:
            if not (measured_only and is_finished(folder)):
                tune(source, budget, folder)
            row = measure(model, source, folder)
        except FelixError as error:  # one model that fails must not lose the others' results
            errors.append(f"{model}: {error}")
            continue
        rows.append(row)
        failed = {name: found for name, found in row.programs.items() if found.status is not Status.OK}
        errors += [f"{model}: {name}: {found.status}: {found.message}" for name, found in failed.items()]
    return rows, errors


def source_of(model: str) -> str:
    """Return how `felix-mlir tune` is told of a model; raises RequestError when there is none of that name."""
    name, _, function = model.partition(":")
    file = EXAMPLES / f"{name}.py"
    if not file.is_file():
        known = ", ".join(sorted(path.stem for path in EXAMPLES.glob("*.py")))
        raise RequestError(f"no model is called '{name}': there are {known}")
    return f"{file}:{function or 'build'}"


def is_finished(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("default.vmfb", "tuned.vmfb", "report.json"))


def tune(source: str, budget: str, folder: Path) -> None:
    """Run `felix-mlir tune`, its report on standard error; raises WorkError when it fails."""
    command = [sys.executable, "-m", "felix_mlir.cli", "tune", source, "--target", CPU.name]
    done = subprocess.run([*command, "--budget", budget, "--out", str(folder)], stdout=sys.stderr, check=False)
    if done.returncode != 0:
        raise WorkError(f"felix-mlir tune ended with exit status {done.returncode}")
    if not is_finished(folder):
        raise WorkError(f"felix-mlir tune left no finished result in {folder}")


def timing_of(folder: Path) -> Timing:
    """Return how long to look at the modules of a result; raises WorkError for a damaged one."""
    try:
        report = json.loads((folder / "report.json").read_text())
        turn_s = sum((report[name] or 0.0) / 1e3 for name in ("default_ms", "tuned_ms"))
    except (ValueError, TypeError, KeyError) as error:
        raise WorkError(f"{folder / 'report.json'} is damaged: tune again") from error
    turns = int(min(TURNS, max(MIN_PAIRS, _MODEL_S / max(turn_s, TURN_S))))
    return Timing(turns * TURN_S, turns)


def measure(model: str, source: str, folder: Path) -> Row:
    """Time a result in turn with the default and torch, its outputs checked against torch's; raises WorkError."""
    _, tensors = call_function(*source.rsplit(":", 1))
    weights = folder / "tuned.irpa"
    with tempfile.TemporaryDirectory(prefix="felix-table-") as scratch, torch_runner(CPU.device) as runner:
        inputs, expected = Path(scratch, "inputs.npz"), Path(scratch, "expected.npz")
        save_arrays(inputs, "arg", [tensor_to_numpy(tensor) for tensor in tensors])
        default = Program(folder / "default.vmfb", inputs, parameters=weights if weights.is_file() else None)
        once = runner.measure(in_torch(default, source), Timing(0.0, 1), _TIMEOUT_S, save_outputs=expected)
        if once.status is not Status.OK:
            raise WorkError(f"torch does not run it: {once.message} (reproduce: {once.command})")
        default = replace(default, expected=expected, tolerance=TOLERANCE)
        programs = (default, replace(default, vmfb=folder / "tuned.vmfb"), in_torch(default, source))
        measured = runner.measure_interleaved(programs, timing_of(folder), _TIMEOUT_S)
    return Row(model, dict(zip(PROGRAMS, measured, strict=True)))


def show(rows: Sequence[Row]) -> None:
    table = Table("model", box=None, pad_edge=False)
    interval = "95 % interval"
    latencies = [f"{name} ms" for name in PROGRAMS]
    for heading in (*latencies, "default/tuned", interval, "torch/tuned", interval, "error to torch"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.model,
            *map(_latency, row.programs.values()),
            *_cells(row.gain_over("default")),
            *_cells(row.gain_over("torch")),
            "" if row.error is None else f"{row.error:.1e}",
        )
    wide_console().print(table)


def _latency(found: Measurement) -> str:
    return found.status.value if found.latency_s is None else f"{1e3 * found.latency_s:.4g}"


def _cells(gain: Comparison | None) -> tuple[str, str]:
    return ("", "") if gain is None else (f"{gain.ratio:.2f}", f"{gain.low:.2f}-{gain.high:.2f}")


def write_json(path: Path, rows: Sequence[Row], errors: Sequence[str], options: Mapping[str, Any]) -> None:
    """Write every figure of the table, every sample, and what it takes to do it again."""
    document = {
        **provenance(_PACKAGES),
        "options": dict(options),
        "host": host_name(CPU),
        "threads": CPU.cores,
        "models": [_entry(row) for row in rows],
        "errors": list(errors),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, default=str) + "\n")


def _entry(row: Row) -> dict[str, Any]:
    gains = {name: row.gain_over(name) for name in ("default", "torch")}
    return {
        "model": row.model,
        **{f"{name}_ms": found.latency_s and 1e3 * found.latency_s for name, found in row.programs.items()},
        **{f"{name}_over_tuned": gain and asdict(gain) for name, gain in gains.items()},
        "relative_error": row.error,
        "programs": {
            name: {
                "status": found.status.value, "message": found.message, "relative_error": found.error,
                "samples_s": found.samples,
            }
            for name, found in row.programs.items()
        },
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--budget", default="5m", help="wall-clock time to tune each model (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "model_table", help="folder of all results")
    parser.add_argument("--measured-only", action="store_true", help="do not tune where OUT/MODEL has a result")
    options = parser.parse_args(arguments)
    try:
        sources = {model: source_of(model) for model in options.models or MODELS}
        parse_duration(options.budget)
        rows, errors = run(sources, options.budget, options.out, options.measured_only)
        write_json(options.out / "model_table.json", rows, errors, vars(options))
    except FelixError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    if rows:
        show(rows)
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

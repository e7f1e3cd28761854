"""Make what tools/device/run_on_gpu.py needs: compiled modules and bundles of candidates. No GPU is used.

pip download --no-deps iree-base-runtime==3.13.0 ml_dtypes
python tools/device/make_payload.py -o payload --wheel iree_base_runtime-*.whl --wheel ml_dtypes-*.whl
then, where the GPU is: python payload/run_on_gpu.py payload -o results.json

Every op of cases.py is compiled as iree-compile does by default, and with schedules chosen without measuring
(felix-mlir tune --no-measure). Candidates of some come as bundles. The wheels, which must be for the Python there, are
installed to a temporary folder where iree.runtime is missing.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

import torch
from cases import CASES, Case, Operation
from run_on_gpu import FORMAT, OPERATIONS, PAYLOAD

from felix_mlir.apply import build_model
from felix_mlir.bundle import make_bundle, run_bundle
from felix_mlir.errors import FelixError, RequestError, WorkError
from felix_mlir.importers import load_model
from felix_mlir.measure.signature import entry_point
from felix_mlir.options import TuneOptions
from felix_mlir.passes.tuned import read_tuned
from felix_mlir.report import Progress, terminal_progress
from felix_mlir.target import parse_target
from felix_mlir.tuning import run_tuning

MAX_BYTES = 60_000_000
# Every dispatch runs this often an invocation: calling a module takes longer than a short kernel.
REPEATS = 32
_BUILD_TIMEOUT_S = 600.0


def make_payload(
    output: Path,
    target_name: str,
    cases: Sequence[Case],
    trials: int,
    bundled: Sequence[str],
    candidates: int,
    wheels: Sequence[Path],
    progress: Progress,
) -> int:
    """Write a payload to the folder `output`, which must not be there, and return its bytes.

    `trials` candidates are considered for each case; the cases named in `bundled` get `candidates` each in a bundle.
    Raises RequestError and WorkError.
    """
    target = parse_target(target_name)
    if output.exists():
        raise RequestError(f"{output} is there: name another folder")
    (output / "modules").mkdir(parents=True)
    described: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="felix-payload-") as folder:
        for case in cases:
            work = Path(folder) / case.name
            inputs = tuple(torch.zeros(shape, dtype=getattr(torch, case.dtype)) for shape in case.shapes)
            source = str(load_model(Operation(OPERATIONS[case.op]), work / "model", inputs).mlir)
            described.append({**asdict(case), **_modules(case, source, target_name, trials, work, output, progress)})
            if case.name in bundled:
                bundle = output / f"{case.name}.tar.xz"
                make_bundle(source, target_name, candidates, 0, bundle, progress)
    bundles = [f"{case.name}.tar.xz" for case in cases if case.name in bundled]
    about = {
        "format": FORMAT, "target": target.name, "device": target.device, "compiler": version("iree-base-compiler"),
        "repeats": REPEATS, "cases": described, "bundles": bundles, "wheels": [wheel.name for wheel in wheels],
    }  # fmt: skip
    (output / PAYLOAD).write_text(json.dumps(about, indent=1) + "\n")
    for path in (Path(__file__).with_name("run_on_gpu.py"), Path(run_bundle.__file__), *wheels):
        shutil.copy(path, output)
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    if size > MAX_BYTES:
        raise WorkError(f"{output} has {size} bytes, more than {MAX_BYTES}: give fewer candidates")
    return size


def _modules(
    case: Case, source: str, target_name: str, trials: int, work: Path, output: Path, progress: Progress
) -> dict[str, object]:
    """Build the default and the chosen module of a case, with repeated dispatches; returns what to say of them."""
    progress.stage(f"choosing schedules of {case.name}")
    result = work / "result"
    report = run_tuning(source, TuneOptions(result, target_name, None, trials, measure=False), progress)
    tuned = read_tuned(result, version("iree-base-compiler"))
    flags = (*tuned.model_flags, f"--iree-hal-benchmark-dispatch-repeat-count={REPEATS}")
    (flow,) = (result / "work").rglob("flow.mlirbc")
    files: dict[str, str] = {}
    for name, tasks in (("default", ()), ("tuned", tuned.tasks)):
        module = output / "modules" / f"{case.name}.{name}.vmfb"
        build = build_model(flow, replace(tuned, model_flags=flags, tasks=tasks), work / module.name, _BUILD_TIMEOUT_S)
        if not build.outcome.ok:
            command = shlex.join(build.outcome.command)
            raise WorkError(f"{case.name}: {build.outcome.message} (reproduce: {command})")
        shutil.copy(work / module.name, module)
        files[name] = f"modules/{module.name}"
    return {**files, "function": entry_point(work / f"{case.name}.default.vmfb"), "tasks": report["tasks"]}


def main() -> int:
    """Do what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(description="Make the payload of run_on_gpu.py.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder to write")
    parser.add_argument("--target", default="cuda:sm_89", help="as felix-mlir takes it")
    parser.add_argument("--trials", type=int, default=64, help="candidates considered per op")
    parser.add_argument("--bundle", action="append", metavar="CASE", help="op to bundle candidates of; may be repeated")
    parser.add_argument("--candidates", type=int, default=64, help="candidates per bundle")
    parser.add_argument("--wheel", type=Path, action="append", default=[], help="wheel to carry; may be repeated")
    arguments = parser.parse_args()
    bundled = arguments.bundle or [case.name for case in CASES if case.op != "softmax"][:5]
    try:
        with terminal_progress() as progress:
            size = make_payload(
                arguments.output, arguments.target, CASES, arguments.trials, bundled, arguments.candidates,
                arguments.wheel, progress,
            )  # fmt: skip
    except FelixError as error:
        print(f"make_payload: {error}", file=sys.stderr)
        return error.exit_status
    print(f"{arguments.output}: {size / 1e6:.1f} MB; where the GPU is: python run_on_gpu.py PAYLOAD -o results.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())

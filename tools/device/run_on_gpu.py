"""Check and time a payload of make_payload.py on this machine: python run_on_gpu.py PAYLOAD -o results.json

This file needs Python 3.9 or later, numpy and torch; iree.runtime where the payload carries no wheel of it; and for
one of the baselines triton. It ends within its time limit, and writes what it has after every step, so that a run
that is cut off is not lost. Nothing is downloaded, and clocks are left as they are.

For every op: the outputs of the default and of the tuned module against torch in a wider type, then default, tuned,
torch (cuBLAS, cuDNN) and, for matmuls, an autotuned Triton kernel timed in turn. Then the bundles' candidates.

Exit status: 0 all done and correct; 1 something failed or was wrong; 2 this machine or the payload will not do.
"""

# ruff: noqa: ANN001, ANN202 (Triton reads the annotations of its kernel itself)

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

FORMAT = 1
PAYLOAD = "payload.json"
TIME_LIMIT_S = 450.0
CASE_TIMEOUT_S = 90.0
# Samples of each program, taken in turn, and how long one is to last.
ROUNDS, SAMPLE_S = 11, 0.02
# What the parent needs after the last child.
MARGIN_S = 5.0

OPERATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "matmul": torch.matmul,
    "batch_matmul": torch.bmm,
    "conv2d": lambda x, weight: torch.nn.functional.conv2d(x, weight, padding=1),
    "softmax": lambda x: torch.softmax(x, dim=-1),
}
WIDER = {"float16": torch.float32, "float32": torch.float64}

if triton is not None:
    _TILES = [(128, 256, 64, 8), (128, 128, 64, 8), (128, 128, 32, 4), (128, 64, 32, 4), (64, 128, 32, 4),
              (64, 64, 64, 4), (64, 32, 64, 4), (32, 64, 64, 4)]  # fmt: skip
    _CONFIGS = [
        triton.Config({"TILE_M": m, "TILE_N": n, "TILE_K": k}, num_warps=warps, num_stages=3)
        for m, n, k, warps in _TILES
    ]

    def _affordable(configs: list[Any], arguments: dict[str, Any], **_: Any) -> list[Any]:
        # Without matrix instructions the largest tile is thousands of instructions a thread, which takes long to build.
        is_narrow = arguments["a"].element_size() < 4
        return [c for c in configs if is_narrow or c.kwargs["TILE_M"] * c.kwargs["TILE_N"] <= 128 * 128]

    @triton.autotune(configs=_CONFIGS, key=["m", "n", "k"], prune_configs_by={"early_config_prune": _affordable})
    @triton.jit
    def _triton_kernel(
        a, b, c, m, n, k, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr
    ):  # fmt: skip
        """c [m, n] = a [m, k] times b [k, n], all row-major; one workgroup a tile of c."""
        rows = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
        columns = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
        inner = tl.arange(0, TILE_K)
        total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
        for start in range(0, k, TILE_K):
            depth = start + inner
            a_tile = tl.load(
                a + rows[:, None] * k + depth[None, :], mask=(rows[:, None] < m) & (depth[None, :] < k), other=0.0
            )
            b_tile = tl.load(
                b + depth[:, None] * n + columns[None, :], mask=(depth[:, None] < k) & (columns[None, :] < n), other=0.0
            )
            total = tl.dot(a_tile, b_tile, total, input_precision="ieee")
        where = c + rows[:, None] * n + columns[None, :]
        tl.store(where, total.to(c.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


def triton_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply matrices with the kernel above; the first call of a shape tries its configurations."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    grid = lambda tile: (triton.cdiv(m, tile["TILE_M"]), triton.cdiv(n, tile["TILE_N"]))  # noqa: E731
    _triton_kernel[grid](a, b, c, m, n, k)
    return c


class Module:
    """A compiled module on a device of iree.runtime, with its arguments there; an invocation waits for its end."""

    def __init__(self, path: Path, function: str, device: str, inputs: list[np.ndarray]) -> None:
        import iree.runtime as rt

        self._rt = rt
        self._device = rt.get_device(device)
        instance = rt.VmInstance()
        module = rt.VmModule.mmap(instance, str(path))
        self._context = rt.VmContext(instance, [rt.create_hal_module(instance, self._device), module])
        self._function = module.lookup_function(function)
        # What they are made of must live as long as they do.
        self._arrays = [rt.asdevicearray(self._device, array) for array in inputs]
        self._arguments = rt.VmVariantList(len(inputs))
        for array in self._arrays:
            self._arguments.push_ref(array._buffer_view)

    def invoke(self) -> Any:
        results = self._rt.VmVariantList(1)
        self._context.invoke(self._function, self._arguments, results)
        return results

    def output(self) -> np.ndarray:
        view = self.invoke().get_as_object(0, self._rt.HalBufferView)
        return np.array(self._rt.DeviceArray(self._device, view).to_host())


def relative_error(output: np.ndarray, reference: torch.Tensor) -> float:
    """Return max|output - reference| / max|reference|; infinite where the shape is wrong or a value is not finite."""
    expected = reference.double().cpu().numpy()
    if output.shape != expected.shape or not np.isfinite(output).all():
        return float("inf")
    return float(np.abs(output.astype(np.float64) - expected).max() / np.abs(expected).max())


def sample(call: Callable[[], Any], count: int, wait: Callable[[], None]) -> float:
    """Return the seconds of one of `count` calls."""
    wait()
    start = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return (time.perf_counter() - start) / count


def time_in_turn(calls: dict[str, Callable[[], Any]], wait: Callable[[], None]) -> dict[str, list[float]]:
    """Return ROUNDS samples of each call in seconds, A B C A B C ..., after as much warming up."""
    counts = {name: max(1, round(SAMPLE_S / max(1e-7, sample(call, 2, wait)))) for name, call in calls.items()}
    counts = {name: max(1, round(SAMPLE_S / sample(calls[name], count, wait))) for name, count in counts.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            samples[name].append(sample(call, counts[name], wait))
    return samples


def run_case(root: Path, payload: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Check and time one op; yields what is to be said of it, again with the baseline that takes longest."""
    case = next(case for case in payload["cases"] if case["name"] == name)
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(shape).astype(case["dtype"]) for shape in case["shapes"]]
    is_cuda = payload["device"] == "cuda"
    wait: Callable[[], None] = torch.cuda.synchronize if is_cuda else (lambda: None)
    # TensorFloat-32 is another precision, and IREE's f32 does without.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    tensors = [torch.from_numpy(array).to("cuda" if is_cuda else "cpu") for array in inputs]
    operation = OPERATIONS[case["op"]]
    reference = operation(*(tensor.to(WIDER[case["dtype"]]) for tensor in tensors))

    calls: dict[str, Callable[[], Any]] = {}
    errors: dict[str, float] = {}
    failures: dict[str, str] = {}
    for which in ("default", "tuned"):
        try:
            module = Module(root / case[which], case["function"], payload["device"], inputs)
            errors[which] = relative_error(module.output(), reference)
            calls[which] = module.invoke
        except Exception as problem:
            failures[which] = f"{type(problem).__name__}: {problem}"
    calls["torch"] = lambda: operation(*tensors)
    errors["torch"] = relative_error(calls["torch"]().cpu().numpy(), reference)
    samples = time_in_turn(calls, wait)
    for which in ("default", "tuned"):
        samples[which] = [seconds / payload["repeats"] for seconds in samples.get(which, [])]
    result = {
        "name": name,
        "errors": errors,
        "is_correct": not failures and all(errors[w] <= case["tolerance"] for w in ("default", "tuned")),
        "us": {which: 1e6 * statistics.median(found) for which, found in samples.items() if found},
        "samples_s": samples,
        "failures": failures,
        "skipped": "",
    }
    if case["op"] == "matmul":
        if triton is None or not is_cuda:
            yield {**result, "skipped": f"Triton is not timed: {'it is not installed' if is_cuda else 'no GPU'}"}
            return
        yield {**result, "skipped": "Triton took too long"}
        try:
            errors["triton"] = relative_error(triton_matmul(*tensors).cpu().numpy(), reference)
            found = time_in_turn({"triton": lambda: triton_matmul(*tensors), "torch": calls["torch"]}, wait)
            samples["triton"], samples["torch_beside_triton"] = found["triton"], found["torch"]
            result["us"].update((which, 1e6 * statistics.median(samples[which])) for which in samples if samples[which])
        except Exception as problem:
            result["skipped"] = f"the Triton kernel failed: {type(problem).__name__}: {problem}"
    yield result


def run_child(command: list[str], timeout_s: float, environment: dict[str, str]) -> tuple[int | None, str, str]:
    """Run a child with a time limit; returns its exit status (None: killed) and what it wrote."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True)
        try:
            status: int | None = child.wait(max(1.0, timeout_s))
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        out.seek(0)
        err.seek(0)
        return status, out.read(), err.read()


class Runner:
    """Runs everything of a payload until `deadline` (of time.monotonic) and keeps the results in a file."""

    def __init__(self, root: Path, payload: dict[str, Any], output: Path, limit_s: float, packages: Path) -> None:
        self._root = root
        self._payload = payload
        self._output = output
        self._begun = time.monotonic()
        self._deadline = self._begun + limit_s
        path = os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH", "")]))
        self._environment = {**os.environ, "PYTHONPATH": path}
        self.results: dict[str, Any] = {
            "format": FORMAT, "target": payload["target"], "compiler": payload["compiler"], "machine": machine(),
            "cases": [], "bundles": [], "seconds": 0.0,
        }  # fmt: skip

    def run(self) -> bool:
        """Returns whether all was done and correct."""
        for case in self._payload["cases"]:
            self._keep("cases", self._case(case["name"]))
        for number, bundle in enumerate(self._payload["bundles"]):
            left = len(self._payload["bundles"]) - number
            self._keep("bundles", self._bundle(bundle, (self._remaining_s() - MARGIN_S) / left))
        cases = all(case.get("is_correct") for case in self.results["cases"])
        return cases and all(bundle["status"] == 0 for bundle in self.results["bundles"])

    def _case(self, name: str) -> dict[str, Any]:
        if self._remaining_s() < MARGIN_S:
            return {"name": name, "failures": {"all": "there was no time left"}}
        command = [sys.executable, __file__, str(self._root), "--case", name]
        status, out, err = run_child(command, min(CASE_TIMEOUT_S, self._remaining_s()), self._environment)
        # Whole lines only: it may have been killed while it wrote one.
        lines = out.split("\n")[:-1]
        if lines:
            return json.loads(lines[-1])
        how = f"ended with exit status {status}" if status is not None else "took too long"
        return {"name": name, "failures": {"all": f"it {how}: {err[-2000:]}"}}

    def _bundle(self, name: str, seconds: float) -> dict[str, Any]:
        if seconds < MARGIN_S:
            return {"name": name, "status": None, "results": [], "message": "there was no time left"}
        results = self._output.with_name(f"{self._output.stem}.{name}.jsonl")
        command = [
            sys.executable, str(self._root / "run_bundle.py"), str(self._root / name), "-o", str(results),
            "--device", self._payload["device"], "--time-limit", str(seconds),
        ]  # fmt: skip
        status, _, err = run_child(command, seconds + MARGIN_S, self._environment)
        lines = results.read_text().splitlines() if results.exists() else []
        last = (err.strip().splitlines() or [""])[-1]
        return {"name": name, "status": status, "results": [json.loads(line) for line in lines], "message": last}

    def _keep(self, kind: str, result: dict[str, Any]) -> None:
        self.results[kind].append(result)
        self.results["seconds"] = time.monotonic() - self._begun
        write_json(self._output, self.results)
        print(f"[{self.results['seconds']:6.1f} s] {summary(result)}", file=sys.stderr, flush=True)

    def _remaining_s(self) -> float:
        return self._deadline - time.monotonic()


def summary(result: dict[str, Any]) -> str:
    """Return one line on an op or a bundle."""
    if "us" not in result:
        failures = result.get("failures", {})
        return f"{result['name']}: {next(iter(failures.values()), result.get('message', ''))}"
    times = ", ".join(f"{which} {us:.1f} us" for which, us in result["us"].items())
    wrong = "" if result["is_correct"] else f"; NOT correct: errors {result['errors']}, {result['failures']}"
    return f"{result['name']}: {times}{wrong}{'; ' + result['skipped'] if result['skipped'] else ''}"


def machine() -> dict[str, Any]:
    """Return what measurements depend on, as far as it can be read."""
    about: dict[str, Any] = {
        "python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "triton": getattr(triton, "__version__", None), "processor": platform.processor(), "devices": [],
    }  # fmt: skip
    if torch.cuda.is_available():
        devices = range(torch.cuda.device_count())
        about["devices"] = [str(torch.cuda.get_device_properties(device)) for device in devices]
        query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem,power.limit", "--format=csv"]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            about["nvidia-smi"] = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    return about


def write_json(path: Path, data: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(data, indent=1) + "\n")
    temporary.replace(path)


def install(root: Path, wheels: list[str], packages: Path) -> None:
    """Install the payload's wheels to a folder of their own, unless iree.runtime is here."""
    if find_spec("iree") is None or find_spec("iree.runtime") is None:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(packages)]
        subprocess.run([*command, *(str(root / wheel) for wheel in wheels)], check=True)


def main() -> int:
    """Do what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(description="Check and time a payload of make_payload.py on this machine.")
    parser.add_argument("payload", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("results.json"), help="the results to write")
    parser.add_argument("--time-limit", type=float, default=TIME_LIMIT_S, metavar="SECONDS", help="end after this time")
    parser.add_argument("--case", help=argparse.SUPPRESS)  # What a child is started with.
    arguments = parser.parse_args()
    try:
        payload = json.loads((arguments.payload / PAYLOAD).read_text())
    except (OSError, ValueError) as problem:
        print(f"run_on_gpu: {arguments.payload} is no payload: {problem}", file=sys.stderr)
        return 2
    if payload.get("format") != FORMAT:
        print(f"run_on_gpu: {arguments.payload} is of another version of make_payload.py", file=sys.stderr)
        return 2
    if arguments.case:
        for result in run_case(arguments.payload, payload, arguments.case):
            print(json.dumps(result), flush=True)
        return 0
    if payload["device"] == "cuda" and not torch.cuda.is_available():
        print(f"run_on_gpu: torch finds no GPU here, and the payload is for {payload['target']}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="felix-packages-") as packages:
        try:
            install(arguments.payload, payload["wheels"], Path(packages))
        except subprocess.CalledProcessError as problem:
            print(f"run_on_gpu: iree.runtime is not here and cannot be installed: {problem}", file=sys.stderr)
            return 2
        runner = Runner(arguments.payload, payload, arguments.output, arguments.time_limit, Path(packages))
        return 0 if runner.run() else 1


if __name__ == "__main__":
    sys.exit(main())

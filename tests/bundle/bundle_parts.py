"""A machine without felix-mlir, and bundles put together by hand of modules that work, crash and hang."""

from __future__ import annotations

import json
import subprocess
import venv
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import iree.runtime
import numpy as np
from ops import ACCUMULATING_MATMUL

from felix_mlir.bundle import run_bundle
from felix_mlir.bundle.archive import describe_file, write_archive
from felix_mlir.bundle.format import BundleCandidate, BundleTask, Manifest
from felix_mlir.bundle.make import bundled_code
from felix_mlir.compiler.process import run_compiler, tool_path
from felix_mlir.target import parse_target
from felix_mlir.tasks import TensorType

CPU = parse_target("cpu")
RUNNER = Path(run_bundle.__file__)

ENDLESS = """
func.func @main(%a: tensor<32x32xf32>, %b: tensor<32x32xf32>) -> tensor<32x32xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %many = arith.constant 1000000000000 : index
  %sum = scf.for %i = %zero to %many step %one iter_args(%x = %a) -> (tensor<32x32xf32>) {
    %c = arith.addf %x, %b : tensor<32x32xf32>
    scf.yield %c : tensor<32x32xf32>
  }
  return %sum : tensor<32x32xf32>
}
"""
OUT_OF_BOUNDS = """
func.func @main(%a: tensor<32x32xf32>, %b: tensor<32x32xf32>) -> tensor<32x32xf32> {
  %far = arith.constant 100000000000 : index
  %empty = tensor.empty() : tensor<32x32xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      outs(%empty : tensor<32x32xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %k = arith.muli %i, %far : index
    %v = tensor.extract %a[%k, %j] : tensor<32x32xf32>
    %w = tensor.extract %b[%i, %j] : tensor<32x32xf32>
    %s = arith.addf %v, %w : f32
    linalg.yield %s : f32
  } -> tensor<32x32xf32>
  return %c : tensor<32x32xf32>
}
"""
_SOURCES = {
    "right": ACCUMULATING_MATMUL.replace("INIT", "0.0"),
    "wrong": ACCUMULATING_MATMUL.replace("INIT", "1.0"),
    "endless": ENDLESS,
    "out of bounds": OUT_OF_BOUNDS,
}


@dataclass(frozen=True)
class EditedManifest(Manifest):
    """A manifest whose JSON has other values, by dotted name, than the format gives it."""

    changes: tuple[tuple[str, object], ...] = ()

    def to_json(self) -> str:
        manifest = json.loads(super().to_json())
        for name, value in self.changes:
            *path, last = name.split(".")
            place = manifest
            for part in path:
                place = place[int(part) if isinstance(place, list) else part]
            place[last] = value
        return json.dumps(manifest)


class Modules:
    """Compiled modules by name, and bundles of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[str, Path] = {"garbage": folder / "garbage.vmfb"}
        self._paths["garbage"].write_bytes(b"no module at all " * 50)

    def path(self, name: str) -> Path:
        if name not in self._paths:
            self._paths[name] = self._folder / f"{name.replace(' ', '_')}.vmfb"
            source = self._folder / "source.mlir"
            source.write_text(_SOURCES[name])
            command = (tool_path("iree-compile"), *CPU.compile_flags, str(source), "-o", str(self._paths[name]))
            outcome = run_compiler(command, 120)
            assert outcome.ok, outcome.stderr
        return self._paths[name]

    def task(self, id_: str, *names: str) -> BundleTask:
        matrix = TensorType((32, 32), np.dtype("float32"))
        candidates = (BundleCandidate("tile", {"d0": i}, f"{id_}/{i}.vmfb") for i in range(len(names)))
        return BundleTask(
            id=id_, kind="matmul", iteration_space=(32, 32, 32), element_types="f32", count=1,
            inputs=(matrix, matrix), tolerance=1e-4, repeats=1, candidates=tuple(candidates),
        )  # fmt: skip

    def manifest(self, **tasks: tuple[str, ...]) -> tuple[Manifest, dict[str, Path]]:
        """Return the manifest of a bundle of tasks, each a tuple of module names, and its files."""
        sources = bundled_code()
        for id_, names in tasks.items():
            sources |= {f"{id_}/{i}.vmfb": self.path(name) for i, name in enumerate(names)}
        made = tuple(self.task(id_, *names) for id_, names in tasks.items())
        files = {name: describe_file(path) for name, path in sources.items()}
        return Manifest("model", CPU, made, {}, files), sources

    def bundle(self, path: Path, *, changes: dict[str, object] | None = None, **tasks: tuple[str, ...]) -> Path:
        """Write a bundle; `changes` are values its manifest has instead, by dotted name."""
        manifest, sources = self.manifest(**tasks)
        values = {name: getattr(manifest, name) for name in Manifest.__dataclass_fields__}
        edited = replace(EditedManifest(**values), changes=tuple((changes or {}).items()))
        write_archive(path, edited, sources)
        return path


class Machine:
    """A machine with a Python that has numpy and iree.runtime, and neither felix_mlir nor a compiler."""

    def __init__(self, folder: Path) -> None:
        packages = folder / "packages"
        (packages / "iree").mkdir(parents=True)
        runtime = Path(iree.runtime.__file__).parent
        for path in (runtime, *runtime.parent.glob("_runtime*")):
            (packages / "iree" / path.name).symlink_to(path)
        for path in runtime.parents[1].glob("iree_base_runtime-*.dist-info"):
            (packages / path.name).symlink_to(path)
        for name in ("numpy", "ml_dtypes"):
            package = Path(find_spec(name).origin).parent
            for path in (package, *package.parent.glob(f"{name}.libs")):
                (packages / path.name).symlink_to(path)
        venv.create(folder / "python", symlinks=True)
        (site,) = (folder / "python").glob("lib/python*/site-packages")
        (site / "packages.pth").write_text(f"{packages}\n")
        self.python = folder / "python" / "bin" / "python"
        # Alone, as a user copies it.
        self.runner = folder / "run_bundle.py"
        self.runner.write_bytes(RUNNER.read_bytes())
        self.temporary = folder / "tmp"
        self.temporary.mkdir()

    def command(self, *arguments: object) -> list[str]:
        return [str(self.python), str(self.runner), *map(str, arguments)]

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(self.command(*arguments), env=self.environment, stderr=subprocess.PIPE, text=True)

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run run_bundle.py, in a folder where it finds nothing, to its end."""
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=120, check=False,
            cwd=self.temporary, env=self.environment,
        )  # fmt: skip

    def run_to(self, output: Path, *arguments: object) -> list[dict]:
        """Run run_bundle.py, which must succeed; returns the lines of its results."""
        done = self.run(*arguments, "-o", output)
        assert done.returncode == 0, done.stderr
        return lines_of(output)

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "TMPDIR": str(self.temporary)}


def lines_of(results: Path) -> list[dict]:
    """Return what follows the header of a results file."""
    return [json.loads(line) for line in results.read_text().splitlines()[1:]]

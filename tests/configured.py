"""Bringing small MLIR modules to the phase where dispatches carry their configuration."""

from __future__ import annotations

import tempfile
from pathlib import Path

from iree.compiler import ir

from felix_mlir.compiler.process import run_compiler, tool_path
from felix_mlir.target import Target, parse_target

CPU = parse_target("cpu")


def compile_checked(*arguments: str) -> None:
    """Run iree-compile and fail with its own words."""
    outcome = run_compiler([tool_path("iree-compile"), *arguments], timeout_s=120)
    assert outcome.ok, outcome.stderr


def write_flow(mlir: str, directory: Path, target: Target = CPU) -> Path:
    """Compile a module to the flow phase as the tuner does; returns the bytecode file."""
    source, flow = directory / "model.mlir", directory / "flow.mlirbc"
    source.write_text(mlir)
    compile_checked(str(source), *target.compile_flags, "--compile-to=flow", "--emit-mlir-bytecode", "-o", str(flow))
    return flow


def configured_module(mlir: str) -> ir.Module:
    """Compile a module to executable-configurations and parse it."""
    with tempfile.TemporaryDirectory() as folder:
        flow, output = write_flow(mlir, Path(folder)), Path(folder) / "configured.mlir"
        compile_checked(
            str(flow), *CPU.compile_flags, "--compile-from=flow", "--compile-to=executable-configurations",
            "--iree-codegen-add-tuner-attributes", "-o", str(output),
        )  # fmt: skip
        return ir.Module.parse(output.read_text(), ir.Context())

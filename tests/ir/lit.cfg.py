"""lit configuration: IR tests are Python files whose output FileCheck reads."""

from __future__ import annotations

import sys
from pathlib import Path

import lit.formats

config.name = "felix-mlir IR"  # noqa: F821 (lit defines it)
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".py"]  # noqa: F821
config.excludes = ["lit.cfg.py"]  # noqa: F821
config.test_source_root = str(Path(__file__).parent)  # noqa: F821
config.test_exec_root = str(Path(__file__).parent.parent.parent / "build" / "lit")  # noqa: F821
tools = Path(sys.executable).parent
config.substitutions.append(("%PYTHON", sys.executable))  # noqa: F821
config.substitutions.append(("%filecheck", str(tools / "filecheck")))  # noqa: F821

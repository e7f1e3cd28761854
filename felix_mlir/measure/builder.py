"""Building candidates: compiler children in parallel, and nothing compiled twice."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from felix_mlir.compiler.parallel import run_parallel
from felix_mlir.compiler.process import BuildOutcome, BuildStatus, run_compiler


@dataclass(frozen=True)
class BuildJob:
    """A compiler command without its `-o`, and the file it is to produce."""

    command: tuple[str, ...]
    output: Path


class Builder:
    """Runs up to `workers` compiler children at once, each for at most `timeout_s` seconds.

    What they produce is kept in the folder `cache` under a hash of the compiler's version, the arguments and
    the bytes of every file an argument names, and found there the next time. The folder serves one machine: a
    target such as "host" means other code elsewhere.
    """

    def __init__(self, workers: int, timeout_s: float, cache: Path) -> None:
        self._workers = workers
        self._timeout_s = timeout_s
        self._cache = cache
        self._compiler = version("iree-base-compiler")

    def build(self, jobs: Sequence[BuildJob]) -> list[BuildOutcome]:
        """Build all `jobs`; outcome i belongs to job i.

        With an OK outcome the output is there, whole; otherwise what was there before still is. An outcome
        that came from the cache has 0 seconds. Ctrl-C kills every child before it passes.
        """
        self._cache.mkdir(parents=True, exist_ok=True)
        return run_parallel(self._workers, [partial(self._build, job) for job in jobs])

    def _build(self, job: BuildJob) -> BuildOutcome:
        command = (*job.command, "-o", str(job.output))
        cached = self._cache / self._key(job.command)
        outcome = BuildOutcome(BuildStatus.OK, "", "", command, 0.0)
        if not cached.exists():
            outcome = replace(self._compile(job.command, cached), command=command)
        if outcome.ok:
            temporary = _temporary(job.output)
            shutil.copyfile(cached, temporary)
            temporary.replace(job.output)
        return outcome

    def _compile(self, command: tuple[str, ...], output: Path) -> BuildOutcome:
        temporary = _temporary(output)
        try:
            outcome = run_compiler((*command, "-o", str(temporary)), self._timeout_s)
            if outcome.ok and not temporary.exists():
                message = "the compiler reported success and wrote nothing"
                return replace(outcome, status=BuildStatus.COMPILE_ERROR, message=message)
            if outcome.ok:
                temporary.replace(output)
            return outcome
        finally:
            temporary.unlink(missing_ok=True)

    def _key(self, command: tuple[str, ...]) -> str:
        parts = [self._compiler, *(_by_content(argument) for argument in command)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _by_content(argument: str) -> str:
    """Return `argument` with the digest of a file in place of its name, as in `--flag=file`."""
    words = argument.split("=")
    for i in range(len(words)):
        name = "=".join(words[i:])
        # os.path: a flag can be too long to be a name, which Path.is_file answers with an exception.
        if os.path.isfile(name):  # noqa: PTH113
            with Path(name).open("rb") as file:
                return "=".join([*words[:i], hashlib.file_digest(file, "sha256").hexdigest()])
    return argument


def _temporary(output: Path) -> Path:
    return output.with_name(f".{output.name}.{os.getpid()}.{threading.get_native_id()}.tmp")

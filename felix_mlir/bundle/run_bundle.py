"""Measure the candidates of a felix-mlir bundle on this machine: python run_bundle.py b.tar.zst -o results.jsonl

This file alone is enough beside the bundle: felix-mlir is not needed, only Python 3.9 or later, numpy and
iree-base-runtime. Every candidate runs in a child process; how each one ended is a line of the results. Started
again with the same results, it goes on where it ended.

The bundle is checked before anything of it runs: a file that is damaged, cut off or made up is refused, and nothing
is written outside a temporary folder. A bundle is a program all the same: run those of people you trust.

Exit status: 0 done, or the time limit was reached; 1 the work failed; 2 the bundle or the request is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import lzma
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

FORMAT = 1
HASH_NAME = "bundle.sha256"
MANIFEST_NAME = "bundle.json"
# What measures is part of the bundle: it fits what it measures, whatever version this file is of.
CODE = "code"
MEASURING = "measuring"

MAX_MANIFEST_BYTES = 64 << 20
MAX_BYTES = 8 << 30
MAX_NAME_BYTES = 100
CHUNK_BYTES = 1 << 20
BLOCK = 512
# A tar is filled up with zeros to a multiple of this.
RECORD = 20 * BLOCK
# No absolute paths, no "..", nothing hidden, and nothing that another system takes for a separator.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")


class Refused(Exception):
    """The bundle or the request is wrong; the message is one line for a reader."""


@contextlib.contextmanager
def opened(bundle: Path) -> Generator[Any, None, None]:
    """Open a bundle, decompressed as its suffix says; what is yielded has `read(size)`."""
    if bundle.name.endswith(".tar.zst"):
        with opened_zstd(bundle) as stream:
            yield stream
    elif bundle.name.endswith((".tar.xz", ".tar")):
        with lzma.open(bundle) if bundle.suffix == ".xz" else bundle.open("rb") as stream:
            yield stream
    else:
        raise Refused(f"{bundle} is no bundle: its name would end in .tar.zst, .tar.xz or .tar")


@contextlib.contextmanager
def opened_zstd(bundle: Path) -> Generator[Any, None, None]:
    for name in ("compression.zstd", "zstandard"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        with module.open(bundle, "rb") as stream:
            yield stream
        return
    program = shutil.which("zstd")
    if program is None:
        raise Refused(f"reading {bundle} takes pip install zstandard or the program zstd; a .tar.xz takes nothing")
    command = [program, "-d", "-c", "-q", "--", str(bundle)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield process.stdout
        finally:
            process.kill()


class Archive:
    """Reads a tar in order. It knows plain files only: anything else (links, devices, long names) is refused."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._bytes = 0

    def content(self, name: str, max_bytes: int) -> bytes:
        """Return the content of the next file, which must be called `name`."""
        size = self._next(name)
        if size > max_bytes:
            raise Refused(f"it says that {name} has {size} bytes")
        return b"".join(self._chunks(size))

    def extract(self, name: str, size: int, sha256: str, path: Path) -> None:
        """Write the next file to `path`, where none may be."""
        if self._next(name) != size:
            raise Refused(f"the size of {name} is wrong")
        digest = hashlib.sha256()
        with path.open("xb") as file:
            for chunk in self._chunks(size):
                digest.update(chunk)
                file.write(chunk)
        if digest.hexdigest() != sha256:
            raise Refused(f"the hash of {name} is wrong")

    def end(self) -> None:
        """Read on to the end, where there must be nothing."""
        if any(self._exactly(2 * BLOCK)) or any(self._exactly(-self._bytes % RECORD)) or self._read(1):
            raise Refused("there is more in it than it says")

    def _next(self, name: str) -> int:
        """Read a header, which must be that of a plain file called `name`; returns its size."""
        header = self._exactly(BLOCK)
        checksum = sum(header) - sum(header[148:156]) + 8 * ord(" ")
        size = re.fullmatch(rb"([0-7]{11})\0", header[124:136])
        # Neither a link's target nor a continued name.
        is_plain = header[156:265] == b"0" + bytes(100) + b"ustar\x0000" and not any(header[345:500])
        if size is None or not is_plain or header[148:156] != b"%06o\0 " % checksum:
            raise Refused(f"where {name} should be there is no plain file")
        if header[:MAX_NAME_BYTES].rstrip(b"\0") != name.encode():
            raise Refused(f"where {name} should be there is another file")
        return int(size[1], 8)

    def _chunks(self, size: int) -> Iterator[bytes]:
        """Yield the content of a file of `size` bytes, and pass what fills it up."""
        for start in range(0, size, CHUNK_BYTES):
            yield self._exactly(min(CHUNK_BYTES, size - start))
        if any(self._exactly(-size % BLOCK)):
            raise Refused("there is more in it than it says")

    def _exactly(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            chunk = self._read(size - len(content))
            if not chunk:
                raise Refused("it is cut off")
            content += chunk
        return content

    def _read(self, size: int) -> bytes:
        try:
            content = self._stream.read(size)
        except Exception as problem:  # Each way to decompress has errors of its own.
            raise Refused(f"it cannot be decompressed ({problem})") from problem
        self._bytes += len(content)
        return content


def extract(bundle: Path, folder: Path) -> tuple[dict[str, Any], str]:
    """Check a bundle and write its files to `folder`, which must be empty; returns its manifest and hash."""
    with opened(bundle) as stream:
        archive = Archive(stream)
        expected = archive.content(HASH_NAME, BLOCK)
        text = archive.content(MANIFEST_NAME, MAX_MANIFEST_BYTES)
        digest = hashlib.sha256(text).hexdigest()
        if expected != f"{digest}  {MANIFEST_NAME}\n".encode():
            raise Refused(f"the hash of {MANIFEST_NAME} is wrong")
        manifest = read_manifest(text)
        for name, about in manifest["files"].items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            archive.extract(name, about["size"], about["sha256"], path)
        archive.end()
    return manifest, digest


def read_manifest(text: bytes) -> dict[str, Any]:
    """Parse and check a manifest as far as names and sizes of files go."""
    try:
        manifest = json.loads(text)
        version = manifest["format"]
        if version != FORMAT:
            raise Refused(f"it has format {version}, this is for {FORMAT}: take the run_bundle.py that came with it")
        files = manifest["files"]
        names = list(files)
        used = [c["file"] for task in manifest["tasks"] for c in task["candidates"]]
        sizes = [about["size"] for about in files.values()]
        is_possible = all(type(size) is int and size >= 0 for size in sizes) and sum(sizes) <= MAX_BYTES
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise Refused(f"its manifest makes no sense ({problem!r})") from problem
    for name in names:
        if not NAME.fullmatch(name) or len(name) > MAX_NAME_BYTES:
            raise Refused(f"it holds a file with the name {name!r}")
    # Some file systems take two names for one that differ in case only.
    if len({name.lower() for name in names}) < len(names):
        raise Refused("it holds two files of one name")
    missing = sorted({str(name) for name in (f"{CODE}/{MEASURING}/__init__.py", *used)} - set(names))
    if missing:
        raise Refused(f"it does not hold {missing[0]!r}, which its manifest names")
    if not is_possible:
        raise Refused(f"its files would take more than {MAX_BYTES} bytes")
    return manifest


class Parser(argparse.ArgumentParser):
    """Answers a wrong request in one line."""

    def error(self, message: str) -> NoReturn:  # pyright: ignore[reportImplicitOverride]  (Python 3.9 has none)
        self.exit(2, f"{self.prog}: {message}\n")


def parse_arguments() -> argparse.Namespace:
    parser = Parser(description="Measure the candidates of a felix-mlir bundle on this machine.")
    parser.add_argument("bundle", type=Path, help="what felix-mlir bundle make wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, help="results; those that are there are kept")
    parser.add_argument("--device", help="as iree.runtime names it, such as cuda or local-task [default: the target's]")
    parser.add_argument("--time-limit", type=float, default=float("inf"), metavar="SECONDS", help="end after this time")
    arguments = parser.parse_args()
    if not arguments.time_limit > 0:
        parser.error("--time-limit takes a number of seconds above 0")
    return arguments


def main() -> int:
    """Do what the command line says; returns the exit status."""
    arguments = parse_arguments()
    # A child and a folder are left behind unless the end comes as an exception.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="felix-bundle-") as folder:
            try:
                manifest, digest = extract(arguments.bundle, Path(folder))
            except Refused as problem:
                print(f"run_bundle: {arguments.bundle} is refused: {problem}", file=sys.stderr)
                return 2
            except OSError as problem:
                print(f"run_bundle: {arguments.bundle} cannot be unpacked: {problem}", file=sys.stderr)
                return 2
            sys.path.insert(0, str(Path(folder, CODE)))
            return importlib.import_module(MEASURING).measure(
                Path(folder), manifest, digest, arguments.bundle, arguments.output, arguments.device,
                arguments.time_limit,
            )  # fmt: skip
    except ImportError as problem:
        print(f"run_bundle: {problem}: pip install iree-base-runtime numpy", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("run_bundle: interrupted; the same command goes on from what was measured", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

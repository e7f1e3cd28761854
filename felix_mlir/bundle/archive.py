"""Writing the archive of a bundle; run_bundle.py reads it.

It is a tar of plain files, in the order of the manifest behind the manifest and its hash: bundle.sha256 (which
`sha256sum -c` takes), bundle.json, then every file that bundle.json lists with digest and size. The digest of the
manifest is therefore the hash of the whole bundle.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import tarfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from felix_mlir.atomic import replacing
from felix_mlir.bundle.format import BundleFile, Manifest
from felix_mlir.bundle.run_bundle import HASH_NAME, MANIFEST_NAME, MAX_BYTES
from felix_mlir.errors import RequestError

# Modules of one task are much alike: what is common to them lies within the windows of both methods.
_ZSTD_LEVEL = 10


def check_output(path: Path) -> None:
    """Raise RequestError if no bundle can be written to `path`."""
    if not path.name.endswith((".tar.zst", ".tar.xz", ".tar")):
        raise RequestError(f"{path}: the name of a bundle ends in .tar.zst, .tar.xz or .tar")
    if path.name.endswith(".tar.zst") and find_spec("zstandard") is None:
        raise RequestError(f"{path}: compressing it takes pip install zstandard; a .tar.xz takes nothing")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise RequestError(f"{path} cannot be written: name a file in a folder that is there")


def describe_file(path: Path) -> BundleFile:
    """Return digest and size of a file."""
    with path.open("rb") as file:
        return BundleFile(hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size)


def write_archive(path: Path, manifest: Manifest, sources: Mapping[str, Path]) -> str:
    """Write a bundle, whole or not at all, and return its hash; `sources` has a file for each name in the manifest.

    Raises RequestError for one that is too big to be read again.
    """
    if sum(file.size for file in manifest.files.values()) > MAX_BYTES:
        raise RequestError(f"the bundle would have more than {MAX_BYTES >> 30} GiB: ask for fewer candidates")
    text = manifest.to_json().encode()
    digest = hashlib.sha256(text).hexdigest()
    with (
        replacing(path) as partial,
        _compressed(partial, path.name) as stream,
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.USTAR_FORMAT) as tar,
    ):
        _add(tar, HASH_NAME, f"{digest}  {MANIFEST_NAME}\n".encode())
        _add(tar, MANIFEST_NAME, text)
        for name in manifest.files:
            _add(tar, name, sources[name].read_bytes())
    return digest


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    # All else that a tar may say of a file (times, owners) would only make equal bundles differ.
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


@contextmanager
def _compressed(path: Path, name: str) -> Generator[IO[bytes]]:
    """Open `path` for writing, compressed as the suffix of `name` says."""
    with path.open("wb") as file:
        if name.endswith(".tar.zst"):
            compressor = import_module("zstandard").ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
            with compressor.stream_writer(file, closefd=False) as stream:
                yield stream
        elif name.endswith(".tar.xz"):
            with lzma.open(file, "wb") as stream:
                yield stream
        else:
            yield file

"""Reading the CUDA kernels out of a compiled module: what the runtime will launch, and their PTX."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# A CUDA executable in a module: a header of 64 bytes, then a FlatBuffer with the same identifier.
_IDENTIFIER = b"CDA1"
_HEADER_BYTES = 64
# Fields of the tables in IREE's cuda_executable_def.fbs, in the order of their declaration.
_EXPORTS, _MODULES = 0, 1
_MODULE_ORDINAL, _NAME, _THREADS, _SHARED_BYTES = 0, 1, 2, 3
_PTX = 0


@dataclass(frozen=True)
class Kernel:
    """One kernel as a module launches it.

    `name` is its entry in `ptx`, which other kernels may share; `threads` the threads of a workgroup in x, y and z;
    `shared_bytes` the dynamic shared memory of a workgroup.
    """

    name: str
    ptx: str
    threads: tuple[int, int, int]
    shared_bytes: int

    @property
    def declared_threads(self) -> tuple[int, ...] | None:
        """What generated code was made for: `.maxntid` of its entry in the PTX; None without one."""
        directives = self.ptx.partition(f".entry {self.name}(")[2].partition("{")[0]
        _, found, sizes = directives.partition(".maxntid ")
        return tuple(int(size) for size in sizes.splitlines()[0].split(",")) if found else None


def read_kernels(module: Path) -> list[Kernel]:
    """Return the kernels of a compiled module in the order they lie there; none of a module without CUDA code.

    Raises ValueError when an executable in it is damaged.
    """
    data = module.read_bytes()
    try:
        return [kernel for executable in _executables(data) for kernel in _kernels(executable)]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"{module} holds a CUDA executable that cannot be read: {error}") from error


def _executables(data: bytes) -> Iterator[_Table]:
    start = data.find(_IDENTIFIER)
    while start >= 0:
        content = start + _HEADER_BYTES
        if data[content + 4 : content + 8] == _IDENTIFIER:
            yield _Table(data, content + _number(data, "<I", content))
        start = data.find(_IDENTIFIER, content)


def _kernels(executable: _Table) -> Iterator[Kernel]:
    texts = [module.string(_PTX) for module in executable.tables(_MODULES)]
    for export in executable.tables(_EXPORTS):
        threads = export.place(_THREADS)
        if threads is None:
            raise IndexError("a kernel without a workgroup size")
        x, y, z = (_number(executable.data, "<I", threads + 4 * i) for i in range(3))
        ptx = texts[export.number(_MODULE_ORDINAL)]
        yield Kernel(export.string(_NAME), ptx, (x, y, z), export.number(_SHARED_BYTES))


class _Table:
    """A table of a FlatBuffer: its fields lie where its table of offsets says, relative to `position`."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self._position = position
        self._offsets = position - _number(data, "<i", position)

    def place(self, field: int) -> int | None:
        """Return where a field lies; None if it is left out, which means its default."""
        entry = 4 + 2 * field
        if entry >= _number(self.data, "<H", self._offsets):
            return None
        offset = _number(self.data, "<H", self._offsets + entry)
        return self._position + offset if offset else None

    def number(self, field: int) -> int:
        place = self.place(field)
        return 0 if place is None else _number(self.data, "<I", place)

    def string(self, field: int) -> str:
        start, length = self._vector(field)
        return self.data[start : start + length].decode()

    def tables(self, field: int) -> Iterator[_Table]:
        start, length = self._vector(field)
        for place in range(start, start + 4 * length, 4):
            yield _Table(self.data, place + _number(self.data, "<I", place))

    def _vector(self, field: int) -> tuple[int, int]:
        """Return where the elements of a vector lie, and how many there are."""
        place = self.place(field)
        if place is None:
            return 0, 0
        start = place + _number(self.data, "<I", place)
        return start + 4, _number(self.data, "<I", start)


def _number(data: bytes, format_: str, position: int) -> int:
    (value,) = struct.unpack_from(format_, data, position)
    return value

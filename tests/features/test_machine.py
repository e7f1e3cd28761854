"""Limits of the machine, read from the host."""

from __future__ import annotations

import os

import pytest

from felix_mlir.features import MachineError, machine, read_host


def test_the_hosts_limits_are_in_order():
    limits = read_host()
    assert limits.cores == len(os.sched_getaffinity(0))
    assert limits.line_bytes <= limits.l1_bytes <= limits.l2_bytes <= limits.l3_bytes
    assert limits.vector_bytes in (16, 32, 64)
    assert read_host(cores=3, vector_bytes=32).cores == 3
    assert set(limits.values()) == {symbol.name for symbol in machine.MACHINE.values()}


def write_caches(folder, *caches):
    for number, entries in enumerate(caches):
        index = folder / "cpu0" / "cache" / f"index{number}"
        index.mkdir(parents=True)
        for name, text in entries.items():
            (index / name).write_text(text + "\n")


def test_a_missing_level_repeats_the_one_inside(tmp_path, monkeypatch):
    line = {"coherency_line_size": "128"}
    write_caches(
        tmp_path,
        {"level": "1", "type": "Data", "size": "64K", **line},
        {"level": "1", "type": "Instruction", "size": "32K", **line},
        {"level": "2", "type": "Unified", "size": "4M", **line},
    )
    monkeypatch.setattr(machine, "_CPU", tmp_path)
    limits = read_host()
    assert (limits.l1_bytes, limits.l2_bytes, limits.l3_bytes, limits.line_bytes) == (65536, 4 << 20, 4 << 20, 128)


def test_a_host_without_caches_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_CPU", tmp_path)
    with pytest.raises(MachineError, match="names no data cache"):
        read_host()

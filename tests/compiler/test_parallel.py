"""Several iterators merged into one: nothing is lost, and an error or an early end reaches all of them."""

from __future__ import annotations

import threading
import time
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix_mlir.compiler.parallel import merged


@given(st.lists(st.lists(st.integers() | st.none(), max_size=6), max_size=4))
def test_all_items_come_and_those_of_one_source_in_order(sources):
    found = list(merged([iter([(index, item) for item in source]) for index, source in enumerate(sources)]))
    assert [[item for index, item in found if index == number] for number in range(len(sources))] == sources


def test_sources_run_at_the_same_time():
    meet = threading.Barrier(3, timeout=10)

    def source(name):
        meet.wait()
        yield name

    assert sorted(merged([source(name) for name in "abc"])) == ["a", "b", "c"]


def test_a_single_source_stays_in_the_thread_of_the_caller():
    assert list(merged([(threading.get_ident() for _ in range(2))])) == [threading.get_ident()] * 2


def test_an_error_passes_and_ends_the_others():
    def failing():
        yield 1
        raise OSError("no device")

    seen = []

    def endless():
        for number in count():
            seen.append(number)
            time.sleep(0.001)
            yield number

    with pytest.raises(OSError, match="no device"):
        list(merged([endless(), failing()]))
    ended = len(seen)
    time.sleep(0.05)
    assert len(seen) == ended


def test_a_caller_that_stops_ends_all():
    for item in merged([iter(range(10**9)), iter(range(10**9))]):
        assert item == 0
        break

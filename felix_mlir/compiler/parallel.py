"""Waiting for several compiler children at once, and for none of them after Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from felix_mlir.compiler.process import kill_group

Result = TypeVar("Result")

INTERRUPT_POLL_S = 0.05


def run_parallel(workers: int, calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """Make all `calls`, up to `workers` at once, each of which may wait for a child; returns their results in order.

    When one raises, or Ctrl-C arrives, the children of all are killed before the exception passes.
    """
    threads: set[int] = set()
    with ThreadPoolExecutor(workers, initializer=lambda: threads.add(threading.get_native_id())) as pool:
        futures: list[Future[Result]] = []
        try:
            for call in calls:
                futures.append(pool.submit(call))
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()  # Raises what one of them raised while others still run.
            return [future.result() for future in futures]
        except BaseException:
            _abandon(futures, threads)
            raise


def merged(sources: Sequence[Iterator[Result]]) -> Iterator[Result]:
    """Yield what several iterators do, each in a thread of its own, in the order in which it comes.

    A single one stays in this thread. When one raises, or the caller stops, the others end after what they are at.
    """
    if len(sources) == 1:
        yield from sources[0]
        return
    ready: SimpleQueue[tuple[Result] | BaseException | None] = SimpleQueue()
    is_over = threading.Event()

    def drain(source: Iterator[Result]) -> None:
        try:
            for item in source:
                ready.put((item,))
                if is_over.is_set():
                    return
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    with ThreadPoolExecutor(max(1, len(sources))) as pool:
        for source in sources:
            pool.submit(drain, source)
        try:
            running = len(sources)
            while running:
                item = ready.get()
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    running -= 1
                else:
                    yield item[0]
        finally:
            is_over.set()


def _abandon(futures: Sequence[Future[Result]], threads: set[int]) -> None:
    # The exception reaches this thread only: the others go on waiting for their children until these end.
    for future in futures:
        future.cancel()
    while True:
        for thread in tuple(threads):
            for pid in _children(thread):
                kill_group(pid)
        if not wait(futures, timeout=INTERRUPT_POLL_S).not_done:
            return


def _children(thread: int) -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{thread}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):  # The thread has ended.
        return []

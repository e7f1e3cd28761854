"""How many threads torch gets."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Generator[None]:
    """Run torch in one thread, and give it back what it had.

    Here it runs thousands of small operations: with two threads they wait for each other, many times longer as soon as
    another program uses the core.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

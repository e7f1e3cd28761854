"""The two ways a request can end badly, and the exit status each has on the command line."""

from __future__ import annotations


class FelixError(Exception):
    """Base of every error a user is meant to read: the message is one line that says what to do."""

    exit_status = 1


class RequestError(FelixError):
    """The request is wrong (no such file, unknown target, unsupported model): nothing was attempted."""

    exit_status = 2


class WorkError(FelixError):
    """The request was fine and the work failed: the message names task, stage and how to reproduce it."""

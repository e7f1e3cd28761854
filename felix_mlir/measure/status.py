"""The closed set of ways a candidate can end."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """One value per candidate; every value but OK comes with a message and a command that reproduces it."""

    OK = "ok"
    INVALID = "invalid"
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    CRASH = "crash"
    RUN_TIMEOUT = "run_timeout"
    WRONG_RESULT = "wrong_result"
    UNSTABLE = "unstable"

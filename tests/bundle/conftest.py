"""What is made once for all tests of bundles."""

from __future__ import annotations

import pytest
from bundle_parts import Machine, Modules


@pytest.fixture(scope="session")
def modules(tmp_path_factory):
    return Modules(tmp_path_factory.mktemp("modules"))


@pytest.fixture(scope="session")
def machine(tmp_path_factory):
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="session")
def plain(modules, tmp_path_factory):
    """A bundle of three candidates that work."""
    return modules.bundle(tmp_path_factory.mktemp("plain") / "plain.tar", task=("right", "right", "right"))

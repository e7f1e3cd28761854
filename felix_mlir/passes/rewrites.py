"""Rewrites of a result: a transform script that iree-compile applies in its preprocessing phase.

Each op the script finds leaves a private function in the module, which later phases drop. That it is there right after
the phase says that the rewrite was applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from iree.compiler import ir

SPEC_FLAG = "--iree-preprocessing-transform-spec-filename"
PREPROCESSING = "preprocessing"
_SYMBOL = re.compile(r"felix_([0-9a-f]{12})")


@dataclass(frozen=True)
class Rewrites:
    """`script` rewrites the ops whose ids are `roots`, of which there is one at least.

    `felix_mlir.sketches.rewrite` writes it. Modules are reproducible only if its ops have locations with a line.
    """

    roots: tuple[str, ...]
    script: str


def replacement_symbol(root_id: str) -> str:
    """Return what the function that replaces a root op is called; a module has it if the op was found in it."""
    return f"felix_{root_id}"


def replaced_roots(text: str) -> set[str]:
    """Return the ids of the root ops whose replacements a text names, such as a location or a compiler's message."""
    return set(_SYMBOL.findall(text))


def missing_roots(module: ir.Operation, roots: Iterable[str]) -> list[str]:
    """Return those of `roots` that a module has no replacement for: a model's after preprocessing, or a script."""
    operations = (op.operation.attributes for op in module.regions[0].blocks[0])
    symbols = {ir.StringAttr(attributes["sym_name"]).value for attributes in operations if "sym_name" in attributes}
    return [root for root in roots if replacement_symbol(root) not in symbols]

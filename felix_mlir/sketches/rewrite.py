"""Rewrites as a transform script that iree-compile itself applies before it forms dispatches.

The carrier is `--iree-preprocessing-transform-spec-filename`. A root op is found by IREE's
`transform.iree.match.cast_compatible_dag_from_root` (compiler/Preprocessing/TransformExtensions), which compares
attributes and bodies, and replaced by the inlined body of a function (`transform.util.cast_and_call inline_call`).
"""

from __future__ import annotations

from collections.abc import Sequence

from felix_mlir.passes.rewrites import replacement_symbol
from felix_mlir.sketches.root import RootOp
from felix_mlir.sketches.sketch import Sketch

_VALUE, _OP = "!transform.any_value", "!transform.any_op"


def rewrite_script(choices: Sequence[tuple[RootOp, Sketch]]) -> str:
    """Return the script that replaces every op equal to a root op as its sketch says."""
    functions = [sketch.function(replacement_symbol(root.id)) for root, sketch in choices]
    matchers = [_matcher(root) for root, _ in choices]
    actions = [_action(root) for root, _ in choices]
    pairs = ",\n      ".join(f"@match_{root.id} -> @replace_{root.id}" for root, _ in choices)
    main = f"""  transform.named_sequence @__transform_main(%module: {_OP}) {{
    %done = transform.foreach_match in %module
      {pairs}
      : ({_OP}) -> {_OP}
    transform.apply_dce to %done : {_OP}
    transform.yield
  }}
"""
    parts = [*functions, *matchers, *actions, main]
    return f"module attributes {{transform.with_named_sequence}} {{\n{''.join(parts)}}}\n"


def _matcher(root: RootOp) -> str:
    head, *body = root.pattern.strip().splitlines()
    arguments = head[head.index("(") : head.index(") ->") + 1]
    ops = "\n".join(f"    {line}" for line in body[:-2])
    readonly = "{transform.readonly}"
    return f"""  transform.named_sequence @match_{root.id}(%root: {_OP} {readonly}) -> ({_VALUE}, {_VALUE}) {{
    %inputs, %outputs = transform.iree.match.cast_compatible_dag_from_root %root {{
    ^bb0{arguments}:
{ops}
    }} : ({_OP}) -> ({_VALUE}, {_VALUE})
    transform.yield %inputs, %outputs : {_VALUE}, {_VALUE}
  }}
"""


def _action(root: RootOp) -> str:
    name = replacement_symbol(root.id)
    readonly = "{transform.readonly}"
    arguments = f"%inputs: {_VALUE} {readonly}, %outputs: {_VALUE} {readonly}"
    return f"""  transform.named_sequence @replace_{root.id}({arguments}) {{
    %root = transform.get_defining_op %outputs : ({_VALUE}) -> {_OP}
    %module = transform.util.get_nearest_symbol_table %root : ({_OP}) -> {_OP}
    %function = transform.util.import_symbol @{name} into %module if undefined : ({_OP}) -> {_OP}
    transform.util.cast_and_call inline_call %function(%inputs) -> %outputs after %root
      : ({_OP}, {_VALUE}, {_VALUE}, {_OP}) -> ()
    transform.yield
  }}
"""

"""A convolution with channels first and a result that has it computed with channels last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from configured import CPU, compile_checked
from passes.conftest import MODEL, draw

from felix_mlir.apply import DEFAULT, with_tasks
from felix_mlir.passes import Rewrites, Tuned
from felix_mlir.passes.rewrites import SPEC_FLAG
from felix_mlir.passes.tuned import FILE_NAME, write_tuned
from felix_mlir.tasks import extract_tasks

ROOT, ABSENT = "conv", "absent"
# What the convolution of `MODEL` makes at the flow phase, as it stands and rewritten.
AS_IT_IS, REWRITTEN = "tensor<32x28x28xf32>", "tensor<28x28x32xf32>"

_OP, _VALUE = "!transform.any_op", "!transform.any_value"
_IMAGE, _FILTER, _OUT = "tensor<1x16x30x30xf32>", "tensor<32x16x3x3xf32>", "tensor<1x32x28x28xf32>"
_IMAGE_LAST, _FILTER_LAST, _OUT_LAST = "tensor<1x30x30x16xf32>", "tensor<3x3x16x32xf32>", "tensor<1x28x28x32xf32>"
_LAST = f"%i, %f : {_IMAGE_LAST}, {_FILTER_LAST}"
_ONES = "dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>"


def _replacement(root: str) -> str:
    lines = f"""%ie = tensor.empty() : {_IMAGE_LAST}
%i = linalg.transpose ins(%x : {_IMAGE}) outs(%ie : {_IMAGE_LAST}) permutation = [0, 2, 3, 1]
%fe = tensor.empty() : {_FILTER_LAST}
%f = linalg.transpose ins(%w : {_FILTER}) outs(%fe : {_FILTER_LAST}) permutation = [2, 3, 1, 0]
%zero = arith.constant 0.0 : f32
%e = tensor.empty() : {_OUT_LAST}
%z = linalg.fill ins(%zero : f32) outs(%e : {_OUT_LAST}) -> {_OUT_LAST}
%c = linalg.conv_2d_nhwc_hwcf {{{_ONES}}} ins({_LAST}) outs(%z : {_OUT_LAST}) -> {_OUT_LAST}
%oe = tensor.empty() : {_OUT}
%o = linalg.transpose ins(%c : {_OUT_LAST}) outs(%oe : {_OUT}) permutation = [0, 3, 1, 2]""".splitlines()
    # Locations are in compiled modules; those of a file would say where the script was.
    body = "\n".join(f'    {line} loc("felix_{root}":1:1)' for line in lines)
    return f"""
  util.func private @felix_{root}(%x: {_IMAGE}, %w: {_FILTER}) -> {_OUT} {{
{body}
    util.return %o : {_OUT}
  }}"""


def script(*roots: str) -> str:
    """The script that rewrites the convolution as the first of `roots`; it finds nothing for the others."""
    return f"""module attributes {{transform.with_named_sequence}} {{{"".join(map(_replacement, roots))}
  transform.named_sequence @match(%root: {_OP} {{transform.readonly}}) -> ({_VALUE}, {_VALUE}) {{
    %inputs, %outputs = transform.iree.match.cast_compatible_dag_from_root %root {{
    ^bb0(%x: {_IMAGE}, %w: {_FILTER}):
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : {_OUT}
      %z = linalg.fill ins(%zero : f32) outs(%e : {_OUT}) -> {_OUT}
      %c = linalg.conv_2d_nchw_fchw {{{_ONES}}} ins(%x, %w : {_IMAGE}, {_FILTER}) outs(%z : {_OUT}) -> {_OUT}
    }} : ({_OP}) -> ({_VALUE}, {_VALUE})
    transform.yield %inputs, %outputs : {_VALUE}, {_VALUE}
  }}
  transform.named_sequence @replace(%ins: {_VALUE} {{transform.readonly}}, %outs: {_VALUE} {{transform.readonly}}) {{
    %root = transform.get_defining_op %outs : ({_VALUE}) -> {_OP}
    %module = transform.util.get_nearest_symbol_table %root : ({_OP}) -> {_OP}
    %function = transform.util.import_symbol @felix_{roots[0]} into %module if undefined : ({_OP}) -> {_OP}
    transform.util.cast_and_call inline_call %function(%ins) -> %outs after %root
      : ({_OP}, {_VALUE}, {_VALUE}, {_OP}) -> ()
    transform.yield
  }}
  transform.named_sequence @__transform_main(%module: {_OP}) {{
    %done = transform.foreach_match in %module @match -> @replace : ({_OP}) -> {_OP}
    transform.apply_dce to %done : {_OP}
    transform.yield
  }}
}}
"""


@dataclass(frozen=True)
class Rewritten:
    """A model and results for it, in files of `folder`: `tuned` has tasks of the rewritten model."""

    folder: Path
    source: Path
    tuned: Tuned

    def result(self, tuned: Tuned, name: str) -> Path:
        """Write a result to a new folder."""
        (folder := self.folder / name).mkdir()
        write_tuned(tuned, folder / FILE_NAME)
        return folder

    def with_roots(self, *roots: str) -> Tuned:
        """The result with more ops or other ones to rewrite."""
        return replace(self.tuned, rewrites=Rewrites(roots, script(*roots)))


def make_rewritten(folder: Path) -> Rewritten:
    """A model with one tuned and rewritten convolution, the result in `folder`/tuned."""
    (source := folder / "model.mlir").write_text(MODEL)
    (spec := folder / "script.mlir").write_text(script(ROOT))
    flow = folder / "flow.mlirbc"
    compile_checked(
        str(source), *CPU.compile_flags, f"{SPEC_FLAG}={spec}", "--compile-to=flow", "--emit-mlir-bytecode",
        "-o", str(flow),
    )  # fmt: skip
    tuned = draw(extract_tasks(flow, CPU, folder / "tasks"))
    rewritten = Rewritten(folder, source, replace(tuned, rewrites=Rewrites((ROOT,), script(ROOT))))
    rewritten.result(rewritten.tuned, "tuned")
    rewritten.result(replace(rewritten.tuned, tasks=()), "untuned")
    return rewritten


def another_model() -> Tuned:
    """A result for a model without tasks and with an op no other has."""
    alternative = replace(DEFAULT, rewrites=Rewrites((ABSENT,), script(ABSENT).replace("28x28", "26x26")))
    return with_tasks("another.mlir", CPU, alternative)

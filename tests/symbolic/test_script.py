"""A template's script: what parses it, what runs it, and how its readings relate."""

from __future__ import annotations

import subprocess

import pytest
from ops import KINDS
from torch_mlir import ir as torch_ir
from torch_mlir.dialects.transform import interpreter

from felix_mlir.compiler.process import tool_path
from felix_mlir.schedule import UnsupportedDispatchError
from felix_mlir.symbolic import payload, read_nest, structure_of, structures, tile, tile_symbolically, tuning_script

KNOB_LINES = 'transform.tune.knob<"'


def torch_parse(text: str) -> torch_ir.Module:
    """Parse with the bindings of a stock MLIR, which know no dialect of IREE's."""
    module = torch_ir.Module.parse(text, torch_ir.Context())
    assert module.operation.verify()
    return module


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_script_and_payload_parse_with_stock_mlir(drawn, kind):
    """Open knobs are in the text with all their sizes, fixed ones as constants."""
    for found in drawn(kind, 1):
        text = tuning_script(found.template)
        torch_parse(text)
        for knob in found.template.knobs:
            options = ", ".join(f"{option} : i64" for option in knob.options)
            assert f'%{knob.name} = {KNOB_LINES}{knob.name}"> options = [{options}]' in text
        first, *rest = found.template.knobs
        some = tuning_script(found.template, {first.name: first.options[0]})
        torch_parse(some)
        assert some.count(KNOB_LINES) == len(rest)
        torch_parse(payload(found.task.configured))


def test_an_op_that_updates_a_buffer_in_place_is_refused(drawn):
    [found] = drawn("copy_on_buffers", 1)
    copy = found.task.configured.read_text()
    update = copy.replace("linalg.yield %in : f32", "%sum = arith.addf %in, %out : f32\n linalg.yield %sum : f32")
    assert update != copy
    with pytest.raises(UnsupportedDispatchError, match="in place"):
        payload(update)


@pytest.mark.parametrize("kind", ["matmul", "conv2d_nchw", "softmax"])
def test_iree_opt_runs_the_script_as_the_bindings_do(drawn, kind, tmp_path):
    """A payload and a script with all knobs fixed are a file that iree-opt tiles."""
    [found] = drawn(kind, 2)
    for values in found.candidates:
        script = tuning_script(found.template, values, structure_of(found.template, values))
        source = tmp_path / "both.mlir"
        source.write_text(payload(found.task.configured).rstrip().removesuffix("}") + script + "}")
        command = [tool_path("iree-opt"), str(source), "--transform-interpreter", "--mlir-print-local-scope"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
        tiled = printed[: printed.index("  module attributes {transform.with_named_sequence}")]
        module = tile(found.template, found.task.configured, values)
        expected = module.operation.get_asm(use_local_scope=True)
        assert tiled.split() == expected.rstrip().removesuffix("}").split()


@pytest.mark.parametrize("kind", ["matmul", "conv2d_nhwc", "layer_norm"])
def test_stock_mlir_runs_the_script_once_knobs_are_selected(drawn, kind):
    """The file a user sees is a schedule for upstream MLIR: select the knobs and interpret it."""
    [found] = drawn(kind, 1)
    for values in found.candidates:
        structure = structure_of(found.template, values)
        text = tuning_script(found.template, structure=structure)
        for name, value in values.items():
            text = text.replace(f'{KNOB_LINES}{name}"> options', f'{KNOB_LINES}{name}"> = {value} : i64 from options')
        script, module = torch_parse(text), torch_parse(payload(found.task.configured))
        with script.context:
            module = torch_ir.Module.parse(str(module), script.context)
            interpreter.apply_named_sequence(module, script.body.operations[0], script)
            assert module.operation.verify()
        ours = tile(found.template, found.task.configured, values).operation.get_asm(use_local_scope=True)
        assert str(module).count("scf.") == ours.count("scf.")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_symbolic_tiling_keeps_every_knob(drawn, kind):
    """In every structure a template can have each knob is the step of a loop, and every step a knob."""
    for found in drawn(kind, 1):
        for structure in structures(found.template):
            nest = read_nest(tile_symbolically(found.template, found.task.configured, structure), found.template)
            steps = {loop.step for loops, _ in nest.stages() for loop in loops}
            assert steps == {knob.symbol for knob in found.template.knobs if knob.level not in structure.idle}

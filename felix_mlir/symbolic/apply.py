"""Running a template's script on its payload."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from iree.compiler import ir
from iree.compiler.dialects.transform import interpreter

from felix_mlir.schedule.template import KnobValues, ScheduleTemplate
from felix_mlir.symbolic.open_sizes import known_sizes, open_sizes
from felix_mlir.symbolic.payload import payload
from felix_mlir.symbolic.script import symbolic_script, tuning_script
from felix_mlir.symbolic.structure import Structure, structure_of


class TilingError(Exception):
    """The script does not apply to the payload; the message is the interpreter's."""


def tile(template: ScheduleTemplate, configured: Path | str, values: KnobValues) -> ir.Module:
    """Tile a dispatch with a size for every knob; `configured` as in `payload`. Returns a verified module.

    Raises TilingError, and UnsupportedDispatchError as `payload` does.
    """
    script = tuning_script(template, values, structure_of(template, values))
    return run_script(payload(configured), script)


def tile_symbolically(
    template: ScheduleTemplate,
    configured: Path | str,
    structure: Structure | None = None,
    fixed: Mapping[str, int] | None = None,
) -> ir.Module:
    """Tile a dispatch with every knob not in `fixed` an SSA value, which a call to an external function yields.

    `structure` is that of the candidates meant (`structures` lists them; all levels, if not given). Raises as `tile`
    does.
    """
    sizes = open_sizes(template)
    known = known_sizes(sizes, fixed or {})
    names = [name for name in sizes if name not in known]
    return run_script(payload(configured, names), symbolic_script(template, fixed, structure))


def run_script(payload_text: str, script: str) -> ir.Module:
    """Apply the script's `__transform_main` to a payload and return the result, verified."""
    context = ir.Context()
    with context:
        module = ir.Module.parse(payload_text, context)
        transform = ir.Module.parse(script, context)
        try:
            interpreter.apply_named_sequence(module, transform.body.operations[0], transform)
            module.operation.verify()
        except (ValueError, RuntimeError, ir.MLIRError) as error:
            raise TilingError(str(error)) from error
        return module

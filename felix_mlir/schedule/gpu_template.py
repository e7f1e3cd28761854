"""GPU templates as data: a schedule template with what a workgroup is made of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Template

import sympy
from iree.compiler import ir
from typing_extensions import override

from felix_mlir.schedule.configuration import Configuration, ConfigurationAttributes
from felix_mlir.schedule.gpu_configuration import GpuConfiguration
from felix_mlir.schedule.gpu_limits import GpuLimits
from felix_mlir.schedule.template import KnobValues, ScheduleTemplate, evaluated

# How an accumulator begins, which the compiler adds to sizes of its own choice.
_NOT_A_SIZE = "convert_acc_gemm, "
_NOTHING = ConfigurationAttributes("", ())


@dataclass(frozen=True)
class GpuTemplate(ScheduleTemplate):
    """All candidates of one GPU pipeline (and, where it uses one, one matrix intrinsic) for one dispatch.

    `tiles` are keyed by `GpuTileLevel` and count elements of the loop; 0 leaves the loop untiled at that level.
    `threads` are those of a workgroup, an expression of knob symbols. `intrinsic` is the size of the matrix
    intrinsic along each loop of the root op (1 where it has none), None for scalar code. `promoted` are the
    operands of the root op that are copied to shared memory, `stages` says how many tiles of them are in flight.

    `written` is the configuration in IREE's attributes, as MLIR prints them, with `$name` in place of what the knobs
    decide: a knob, or an entry of `derived`, which are expressions of knob symbols.
    """

    threads: sympy.Expr
    subgroup_size: int
    intrinsic: tuple[int, ...] | None
    promoted: tuple[int, ...]
    stages: sympy.Expr
    limits: GpuLimits
    pipeline: str = ""
    written: ConfigurationAttributes = _NOTHING
    derived: Mapping[str, sympy.Expr] = field(default_factory=dict[str, sympy.Expr])

    @override
    def configuration(self, values: KnobValues) -> GpuConfiguration:
        return GpuConfiguration(self.pipeline, self.tile_sizes(values), self._attributes(values))

    @override
    def sizes_of(self, configuration: Configuration) -> dict[str, int] | None:
        """Return a size per knob as `configuration` has it; None when anything but sizes differs in its lowering."""
        if not isinstance(configuration, GpuConfiguration) or configuration.pipeline != self.pipeline:
            return None
        values: dict[str, int] = {}
        texts = configuration.written.lowering_configs
        if len(texts) != len(self.written.lowering_configs):
            return None
        for pattern, text in zip(self.written.lowering_configs, texts, strict=True):
            found = re.fullmatch(_named_numbers(pattern), text.replace(_NOT_A_SIZE, ""))
            if found is None:
                return None
            values |= {name: int(value) for name, value in found.groupdict().items()}
        sizes = {knob.name: values[knob.name] for knob in self.knobs if knob.name in values}
        if len(sizes) < len(self.knobs):
            return None
        derived = self._derived(sizes)
        return sizes if all(derived.get(name, value) == value for name, value in values.items()) else None

    def _attributes(self, values: KnobValues) -> ConfigurationAttributes:
        numbers = {**values, **self._derived(values)}
        with ir.Context():
            return ConfigurationAttributes(
                _printed(self.written.translation_info, numbers),
                tuple(_printed(text, numbers) for text in self.written.lowering_configs),
            )

    def _derived(self, values: KnobValues) -> dict[str, int]:
        return {name: evaluated(expression, values) for name, expression in self.derived.items()}


def _printed(text: str, numbers: Mapping[str, int]) -> str:
    """An attribute as MLIR prints it, so that two of the same meaning are equal."""
    return str(ir.Attribute.parse(Template(text).substitute(numbers)))


def _named_numbers(text: str) -> str:
    """A regular expression for a printed attribute that captures the number at each `$name`."""
    seen: set[str] = set()

    def capture(match: re.Match[str]) -> str:
        name = match.group(1)
        again = name in seen
        seen.add(name)
        return f"(?P={name})" if again else rf"(?P<{name}>\d+)"

    return re.sub(r"\\\$(\w+)", capture, re.escape(text))

"""The compiler's own rules for matrix intrinsics, read into conditions: z3 and the templates agree on what is legal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import sympy
import z3
from cuda_tasks import CUDA_KINDS, cuda_task, draw, narrow_matmul
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from iree.compiler import ir
from iree.compiler.dialects import iree_codegen

from felix_mlir.schedule import GpuTemplate, GpuTileLevel
from felix_mlir.schedule.gpu_lowering import lowering_rules
from felix_mlir.schedule.smt import constraints_ops, read_rules, without_existing, without_given
from felix_mlir.schedule.template import Constraint, Size, evaluated, knob_symbol


class Stated:
    """The constraints op of a template's pipeline, for z3 and as conditions, with the template's intrinsic chosen."""

    def __init__(self, constraints: str, template: GpuTemplate) -> None:
        with ir.Context():
            self.module = ir.Module.parse(constraints)  # owns the op
            # Of a convolution's, the one over its own loops: the others have fewer.
            loops = len(template.dispatch.root.extents)
            self.op = next(
                op
                for op in constraints_ops(self.module.operation)
                if f"<{template.pipeline}>" in str(op.attributes["pipeline"])
                and len(str(op.attributes["knobs"]).split(" workgroup = [")[1].split("]")[0].split(",")) == loops
            )
            names = str(self.op.attributes["knobs"])
            options = names.split('"mma_idx", [')[1].split("]")[0].split(", ")
            mma = template.name.split(" ")[1]
            self.choice = {"mma_idx": next(i for i, option in enumerate(options) if mma in option)}
            if "use_igemm_idx" in names:
                self.choice["use_igemm_idx"] = 0
            rules = read_rules(self.op, self.choice)
            knobs = {knob.name for knob in template.knobs}
            derivable = [name for name in rules.names if name not in knobs]
            self.conditions, self.derived = without_given(without_existing(rules), derivable)
            self.solver = z3.Solver()
            self.solver.add(z3.parse_smt2_string(iree_codegen.convert_constraints_op_to_smtlib(self.op)))
        self.names = [knob.name for knob in template.knobs]

    def assignment(self, values: dict[str, int]) -> dict[str, int]:
        derived = {name: int(evaluated(expr, values)) for name, expr in self.derived.items()}
        return {**values, **derived, **self.choice}

    def allows(self, values: dict[str, int]) -> bool:
        """z3's verdict on sizes of the knobs; it finds what the others have to be."""
        self.solver.push()
        for name, value in {**values, **self.choice}.items():
            self.solver.add(z3.Int(name) == value)
        verdict = self.solver.check()
        self.solver.pop()
        assert verdict != z3.unknown
        return verdict == z3.sat

    def solutions(self, count: int) -> list[dict[str, int]]:
        """Some sizes of the knobs that z3 finds by itself."""
        found: list[dict[str, int]] = []
        self.solver.push()
        for name, value in self.choice.items():
            self.solver.add(z3.Int(name) == value)
        while len(found) < count and self.solver.check() == z3.sat:
            model = self.solver.model()
            found.append({name: model.eval(z3.Int(name)).as_long() for name in self.names})
            self.solver.add(z3.Or([z3.Int(name) != value for name, value in found[-1].items()]))
        self.solver.pop()
        return found

    def holds(self, values: dict[str, int]) -> bool:
        return all(_holds(condition, values) for condition in self.conditions)


def _holds(constraint: Constraint, values: dict[str, int]) -> bool:
    return bool(constraint.holds({name: np.array([values[name]]) for name in values})[0])


def stated_by(mlir: str) -> list[tuple[GpuTemplate, Stated]]:
    tunable = cuda_task(mlir).tunable
    text = tunable.configured.with_name("constraints.mlir").read_text()
    return [(template, Stated(text, template)) for template in tunable.templates]


def needs(template: GpuTemplate) -> Iterator[Constraint]:
    """What code generation needs beside what the compiler states, from the template's own data."""
    tiles = template.tiles[template.dispatch.root_index]
    level = {name: [size_of(size) for size in tiles[name]] for name in (GpuTileLevel.WORKGROUP, GpuTileLevel.REDUCTION)}
    yield from lowering_rules(
        template.dispatch.root,
        {name: tuple(sizes) for name, sizes in level.items()},
        template.promoted if template.pipeline == "VectorDistribute" else (),
        template.threads,
        is_padded="padding" in template.written.lowering_configs[0],
    )


def size_of(size: Size) -> sympy.Expr:
    return knob_symbol(size) if isinstance(size, str) else sympy.sympify(size)


def near(values: dict[str, int], template: GpuTemplate, rng: np.random.Generator) -> dict[str, int]:
    """A neighbour of a candidate, by one knob: another of its options, or a little more, less or double."""
    knob = template.knobs[rng.integers(len(template.knobs))]
    size = values[knob.name]
    others = (size + 1, max(1, size - 1), 2 * size, max(1, size // 2), int(rng.integers(1, 600)))
    sizes = [int(rng.choice(knob.options)), *others]
    return {**values, knob.name: sizes[rng.integers(len(sizes))]}


EXTENTS = st.one_of(st.sampled_from([16, 197, 211, 11008, 50, 768]), st.integers(17, 700))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(m=EXTENTS, n=EXTENTS, k=EXTENTS, element=st.sampled_from(["f16", "bf16"]), seed=st.integers(0, 1000))
def test_z3_and_the_conditions_agree_on_every_point(m, n, k, element, seed):
    task = cuda_task(narrow_matmul(m, n, k, element))
    if task.tunable is None:
        pytest.skip(task.reason)
    agree_on_every_point(narrow_matmul(m, n, k, element), seed)


def test_z3_and_the_conditions_agree_on_a_convolution():
    agree_on_every_point(CUDA_KINDS["narrow_conv"], seed=0)


def agree_on_every_point(mlir: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for template, stated in stated_by(mlir):
        legal = draw(template, 8, seed)
        points = [*legal, *(near(values, template, rng) for values in legal for _ in range(3)), *stated.solutions(4)]
        rules = list(needs(template))
        for values in points:
            allowed = stated.allows(values)
            assert stated.holds(values) == allowed
            is_legal = template.violations(values) == []
            # The template asks for what code generation needs beside.
            assert is_legal == (allowed and all(_holds(rule, values) for rule in rules)), values


@pytest.mark.parametrize("kind", ["narrow_matmul", "narrow_matmul_bf16", "narrow_conv"])
def test_configurations_are_those_the_compiler_makes_of_the_same_sizes(kind):
    for template, stated in stated_by(CUDA_KINDS[kind]):
        for values in draw(template, 5):
            written = template.configuration(values).written
            with stated.op.context:
                info = iree_codegen.materialize_compilation_info(stated.op, stated.assignment(values))
                assert str(info.lowering_config) == written.lowering_configs[0]
                assert info.translation_info == ir.Attribute.parse(written.translation_info)


def test_tiles_that_an_edge_cuts_are_padded():
    """Without, code generation fails; it is the only thing beside what the compiler makes of the sizes."""
    for template, stated in stated_by(CUDA_KINDS["narrow_matmul_odd"]):
        assert template.pipeline == "TileAndFuse"
        values = draw(template, 1)[0]
        with stated.op.context:
            info = iree_codegen.materialize_compilation_info(stated.op, stated.assignment(values))
        (text,) = template.configuration(values).written.lowering_configs
        sizes = [values["wg_0"], values["wg_1"], 16 * values["red_2"]]
        assert text.replace(f"padding = {sizes}, ", "") == str(info.lowering_config)

"""Features of the nests of real tasks, one of every op kind."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import torch
from feature_cases import MACHINE
from ops import KINDS

from felix_mlir.features import Program, derive_cpu_features
from felix_mlir.schedule import LegalSpace
from felix_mlir.symbolic import read_nest, tile, tile_symbolically
from felix_mlir.symbolic.structure import structure_of


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_features_of_a_task(kind, tasks_of):
    task = tasks_of(kind).root
    for template in task.tunable.templates:
        nest = read_nest(tile_symbolically(template, task.tunable.configured), template)
        features = derive_cpu_features(nest)
        names = [knob.name for knob in template.knobs]
        program = Program([(f.name, f.expr) for f in features], names)
        assert len(set(program.names)) == len(features)
        drawn = LegalSpace(template).draw(20, np.random.default_rng(0))
        points = np.array([[values[name] for name in names] for values in drawn])
        exact = program.exact_matrix(points, MACHINE)
        assert np.isfinite(exact).all()
        assert (exact >= 0).all()
        root = max(program.names, key=lambda n: exact[0, program.names.index(n)] if n.endswith("/iterations") else 0)
        assert (exact[:, program.names.index(root)] == prod(template.dispatch.root.extents)).all()
        logs = torch.log(torch.tensor(points, dtype=torch.float64)).requires_grad_()
        hot = program.relaxed(torch.exp(logs), MACHINE, temperature=1.0)
        cold = program.relaxed(torch.tensor(points, dtype=torch.float64), MACHINE, temperature=0.0)
        np.testing.assert_allclose(cold.numpy(), exact, rtol=1e-12)
        (gradient,) = torch.autograd.grad(torch.log1p(hot).sum(), logs)
        assert torch.isfinite(gradient).all()
        assert (hot >= 0).all()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_expressions_at_integers_are_what_the_concretely_tiled_ir_gives(kind, tasks_of):
    """Knobs put into expressions, against sizes put into the script that tiles the IR."""
    task = tasks_of(kind).root
    configured = task.tunable.configured
    for template in task.tunable.templates:
        names = [knob.name for knob in template.knobs]
        for values in LegalSpace(template).draw(2, np.random.default_rng(1)):
            symbolic = tile_symbolically(template, configured, structure_of(template, values))
            concrete = tile(template, configured, values)
            by_expression, by_size = (
                Program([(f.name, f.expr) for f in derive_cpu_features(read_nest(module, template))], names)
                for module in (symbolic, concrete)
            )
            assert by_expression.names == by_size.names
            at = {name: values[name] for name in names}
            expected = by_size.exact(at, MACHINE)
            for name, value in by_expression.exact(at, MACHINE).items():
                assert value == pytest.approx(expected[name], rel=1e-12), name

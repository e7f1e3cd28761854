"""Shapes as symbols: values come back, and dispatches of one structure share one program."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from configured import CPU, configured_module, write_flow
from feature_cases import MACHINE
from iree.compiler import passmanager
from ops import KINDS, conv2d_nchw, matmul

from felix_mlir.features import DispatchFeatures, Program, derive_cpu_features
from felix_mlir.passes import add_feature_report
from felix_mlir.schedule import LegalSpace
from felix_mlir.symbolic import lift_shapes, read_nest, structure_of, tile_symbolically
from felix_mlir.tasks import extract_tasks


def nest_of(task):
    template = task.tunable.templates[0]
    return read_nest(tile_symbolically(template, task.tunable.configured), template)


def exact(nest, template, points, extents):
    features = derive_cpu_features(nest)
    program = Program([(f.name, f.expr) for f in features], [knob.name for knob in template.knobs])
    return program.exact({name: points[name] for name in points}, {**MACHINE, **extents})


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_features_with_shape_symbols_are_those_without(tasks_of, kind):
    task = tasks_of(kind).root
    template = task.tunable.templates[0]
    draws = LegalSpace(template).draw(4, np.random.default_rng(0))
    structure = structure_of(template, draws[0])
    nest = read_nest(tile_symbolically(template, task.tunable.configured, structure), template)
    lifted, extents = lift_shapes(nest)
    assert extents
    same = [values for values in draws if structure_of(template, values) == structure]
    points = {knob.name: np.array([values[knob.name] for values in same]) for knob in template.knobs}
    plain, symbolic = exact(nest, template, points, {}), exact(lifted, template, points, extents)
    assert plain.keys() == symbolic.keys()
    for name, values in plain.items():
        assert np.allclose(np.asarray(values, float), np.asarray(symbolic[name], float), rtol=1e-12), name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (matmul(64, 96, 72), matmul(48, 200, 40)),
        (conv2d_nchw(30, 16, 32, 3), conv2d_nchw(18, 32, 40, 3)),
    ],
)
def test_equal_structures_share_one_program(tmp_path, one, other):
    nests, templates, values = [], [], []
    for index, mlir in enumerate((one, other)):
        (folder := tmp_path / str(index)).mkdir()
        tasks = extract_tasks(write_flow(mlir, folder), CPU, folder / "tasks")
        task = max((t for t in tasks if t.tunable), key=lambda t: prod(t.iteration_space))
        lifted, extents = lift_shapes(nest_of(task))
        nests.append(lifted)
        templates.append(task.tunable.templates[0])
        values.append((extents, nest_of(task)))
    assert nests[0].body == nests[1].body
    features = derive_cpu_features(nests[0])
    shared = Program([(f.name, f.expr) for f in features], [knob.name for knob in templates[0].knobs])
    for template, (extents, nest) in zip(templates, values, strict=True):
        (draw,) = LegalSpace(template).draw(1, np.random.default_rng(1))
        points = {name: np.array([size]) for name, size in draw.items()}
        alone = exact(nest, template, points, {})
        together = shared.exact(points, {**MACHINE, **extents})
        assert all(np.allclose(np.ravel(alone[n])[0], np.ravel(together[n])[0], rtol=1e-12) for n in alone)


def test_features_are_a_pass_on_irees_pass_manager():
    module = configured_module(KINDS["matmul"])
    before = str(module)
    found: list[DispatchFeatures] = []
    with module.context:
        manager = passmanager.PassManager("builtin.module")
        add_feature_report(manager, found.append)
        manager.run(module.operation)
    assert str(module) == before
    (report,) = found
    assert (report.dispatch, report.template, report.reason) == ("main_dispatch_0", "DoubleTilingExpert", "")
    assert report.extents == {"extent_d0": 50, "extent_d1": 96, "extent_d2": 72}
    assert any("distribution_d0" in str(f.expr) and "extent_d0" in str(f.expr) for f in report.features)

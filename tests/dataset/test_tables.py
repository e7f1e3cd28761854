"""Tables of measured candidates: written, read, refused, resolved to candidates of this version's templates."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from felix_mlir.dataset import SUITES, Row, Table, read_table, write_table
from felix_mlir.dataset.ops import conv2d_nchw, matmul
from felix_mlir.dataset.resolve import resolve
from felix_mlir.errors import RequestError
from felix_mlir.measure.status import Status
from felix_mlir.schedule import TileLevel

LEVELS = {TileLevel.DISTRIBUTION: (8, 16, 0), TileLevel.VECTOR_REDUCTION: (0, 0, 4)}
TABLE = Table(
    name="matmul", mlir=matmul(32, 64, 48), target="cpu", cpu="host", cores=2, compiler="iree-base-compiler 3.13.0",
    kind="sample", iteration_space=(32, 64, 48), flops=2 * 32 * 64 * 48, default_levels=LEVELS, default_s=1e-4,
    rows=(
        Row("DoubleTilingExpert", LEVELS, Status.OK, 2e-4, knobs={"distribution_d0": 8}),
        Row("DoubleTilingExpert", LEVELS, Status.COMPILE_ERROR, None, "too large"),
    ),
    host="a processor x2", machine={"cores": 2},
)  # fmt: skip

statuses = st.sampled_from(list(Status))
sizes = st.tuples(*[st.integers(0, 64)] * 3)


@st.composite
def rows(draw):
    status = draw(statuses)
    latency_s = draw(st.floats(1e-9, 10)) if status is Status.OK else None
    levels = draw(st.dictionaries(st.sampled_from(list(TileLevel)), sizes))
    error = "" if status is Status.OK else draw(st.text(max_size=20))
    return Row("DoubleTilingExpert", levels, status, latency_s, error, draw(st.none() | st.just({"a": 3})))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(rows(), max_size=5), st.booleans())
def test_a_table_is_read_as_it_was_written(tmp_path_factory, found, compressed):
    path = tmp_path_factory.mktemp("tables") / ("t.jsonl.gz" if compressed else "t.jsonl")
    table = replace(TABLE, rows=tuple(found))
    write_table(table, path)
    assert read_table(path) == table


def test_equal_tables_are_equal_files(tmp_path):
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_table(TABLE, tmp_path / name)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_tables_of_others_may_lack_what_is_optional(tmp_path):
    path = tmp_path / "t.jsonl"
    write_table(TABLE, path)
    header, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    for key in ("host", "machine"):
        header.pop(key)
    lines[0].pop("knobs")
    path.write_text("\n".join(map(json.dumps, [{**header, "o3_latency_s": 1.0, "new": 1}, *lines])) + "\n\n")
    table = read_table(path)
    assert table.machine is None
    assert table.rows[0].knobs is None
    assert table.best_s == 2e-4


DAMAGE = {
    "empty": lambda lines: [],
    "no header": lambda lines: lines[1:],
    "format": lambda lines: [lines[0].replace("felix-replay-1", "felix-replay-9"), *lines[1:]],
    "cut": lambda lines: [*lines[:-1], lines[-1][:20]],
    "status": lambda lines: [lines[0], lines[1].replace('"ok"', '"fine"')],
    "latency": lambda lines: [lines[0], lines[1].replace("0.0002", "-1")],
    "level": lambda lines: [lines[0], lines[1].replace("distribution", "distributed")],
    "kind": lambda lines: [lines[0].replace('"sample"', '"lattice"'), *lines[1:]],
    "no dict": lambda lines: [lines[0], "[1, 2]"],
}


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_a_damaged_table_is_refused_by_name(tmp_path, damage):
    path = tmp_path / "t.jsonl"
    write_table(TABLE, path)
    path.write_text("\n".join(DAMAGE[damage](path.read_text().splitlines())))
    with pytest.raises(RequestError, match=r"t\.jsonl"):
        read_table(path)


@pytest.mark.parametrize("content", [b"\x1f\x8b broken", b"\xff\xfe"])
def test_a_file_that_is_no_text_is_refused(tmp_path, content):
    path = tmp_path / ("t.jsonl.gz" if content[0] == 0x1F else "t.jsonl")
    path.write_bytes(content)
    with pytest.raises(RequestError, match="cannot read the table"):
        read_table(path)


def test_rows_resolve_with_and_without_knobs(tmp_path):
    """A row that names levels only means the same candidate; one that fits no template is counted as such."""
    resolved = resolve(replace(TABLE, rows=()), tmp_path / "a")
    template = resolved.tunable.templates[0]
    values = template.values_of(resolved.tunable.default)
    levels = template.configuration(values).ops[resolved.tunable.dispatch.root_index]
    rows = (
        Row(template.name, levels, Status.OK, 1e-4, knobs=values),
        Row(template.name, levels, Status.OK, 1e-4),
        Row("NoSuchPipeline", levels, Status.OK, 1e-4),
        Row(template.name, {TileLevel.DISTRIBUTION: (8, 8)}, Status.OK, 1e-4),
    )
    with_knobs, without, *others = resolve(replace(TABLE, rows=rows), tmp_path / "b").candidates
    assert with_knobs == without
    assert with_knobs.values == values
    assert others == [None, None]


def test_sizes_outside_this_version_s_space_resolve_too(tmp_path):
    """Whoever measured tiles that divide nothing had reasons; they are candidates of a listed space."""
    levels = {
        TileLevel.DISTRIBUTION: (1, 7, 5, 12, 0, 0, 0),
        TileLevel.VECTOR_COMMON_PARALLEL: (1, 4, 1, 5, 0, 0, 0),
        TileLevel.VECTOR_REDUCTION: (0, 0, 0, 0, 3, 1, 1),
    }
    row = Row("ConvTileAndDecomposeExpert", levels, Status.OK, 1e-4)
    table = replace(TABLE, mlir=conv2d_nchw(16, 8, 16, 3), rows=(row,))
    resolved = resolve(table, tmp_path)
    (candidate,) = resolved.candidates
    assert resolved.templates[0].violations(candidate.values) != []
    assert candidate.values["vector_d3"] == 5


def test_a_table_of_another_target_or_of_no_op_is_refused(tmp_path):
    with pytest.raises(RequestError, match="unknown target"):
        resolve(replace(TABLE, target="tpu"), tmp_path / "a")
    with pytest.raises(RequestError, match="cannot be tuned here"):
        resolve(replace(TABLE, mlir="nonsense"), tmp_path / "b")


def test_no_op_is_in_two_suites_and_names_are_files():
    names = [name for suite in SUITES.values() for name in suite]
    assert len(set(names)) == len(names)
    texts = [mlir for suite in SUITES.values() for mlir in suite.values()]
    assert len(set(texts)) == len(texts)
    assert all(name.isidentifier() for name in names)

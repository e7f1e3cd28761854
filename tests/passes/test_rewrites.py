"""Results that rewrite ops: how they are kept, and that both drivers apply them and say so in the same words."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
from configured import CPU
from passes.rewritten import ABSENT, AS_IT_IS, REWRITTEN, ROOT, another_model, make_rewritten, script
from passes.test_iree_compile import BOTH, DRIVERS, NATIVE, drive, stock

from felix_mlir.apply import compile_tuned
from felix_mlir.errors import RequestError
from felix_mlir.passes import Rewrites, Tuned, TunedTask, read_tuned
from felix_mlir.passes.driver import CONFIGURATIONS
from felix_mlir.passes.rewrites import SPEC_FLAG
from felix_mlir.passes.tuned import FILE_NAME, REWRITES_FILE_NAME, rewrites_file, write_tuned
from felix_mlir.schedule import ConfigurationAttributes

TO_FLOW, TO_PREPROCESSING = "--compile-to=flow", "--compile-to=preprocessing"
PLAIN = Tuned("m", "cpu", "3.13.0", ("--a",), (), (TunedTask("t", "form", ConfigurationAttributes("1 : i64", ()), 4),))
PLAIN_TEXT = """module attributes {
  felix.compiler = "3.13.0",
  felix.format = 1 : i64,
  felix.model = "m",
  felix.model_flags = [],
  felix.target = "cpu",
  felix.target_flags = ["--a"]} {
  module @"t" attributes {
    felix.form = "form",
    felix.lowering_configs = [],
    felix.translation_info = 1 : i64,
    felix.workgroups = 4 : i64} {
  }
}
"""


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory):
    return make_rewritten(tmp_path_factory.mktemp("rewritten"))


def test_a_result_without_rewrites_is_written_as_before(tmp_path):
    """Byte for byte; a script that an earlier result left is no part of it, and is removed."""
    file = tmp_path / FILE_NAME
    write_tuned(PLAIN, file)
    assert file.read_text() == PLAIN_TEXT
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    with_script = replace(PLAIN, rewrites=Rewrites((ROOT,), script(ROOT)))
    write_tuned(with_script, file)
    assert read_tuned(tmp_path, "3.13.0") == read_tuned(file, "3.13.0") == with_script
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE_NAME, REWRITES_FILE_NAME]
    write_tuned(PLAIN, file)
    assert file.read_text() == PLAIN_TEXT
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize(
    ("configurations", "rewrites"),
    [
        (FILE_NAME, REWRITES_FILE_NAME),
        ("model.configurations.mlir", "model.rewrites.mlir"),
        ("copy.mlir", "copy.mlir.rewrites.mlir"),
        ("a", "a.rewrites.mlir"),
    ],
)
@pytest.mark.parametrize("driver", BOTH)
def test_the_script_is_beside_the_configurations(driver, rewritten, tmp_path, configurations, rewrites):
    file = tmp_path / configurations
    write_tuned(replace(rewritten.tuned, tasks=()), file)
    assert rewrites_file(file) == tmp_path / rewrites
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([configurations, rewrites])
    done = drive(driver, rewritten.source, f"--felix-tuned={file}", "--felix-print-landed", TO_PREPROCESSING)
    assert f"felix: op {ROOT} was rewritten" in done.stderr.decode()


def convolved(flow: str) -> list[str]:
    """The types the reductions of a model at the flow phase make."""
    return re.findall(r'"reduction".* outs\(%\S+ : (\S+)\)', flow)


def test_a_rewritten_model_is_the_same_however_it_is_compiled(rewritten, tmp_path):
    """By felix-mlir compile, by both drivers and, but for tile sizes, by iree-compile itself."""
    for result in ("tuned", "untuned"):
        folder, expected = rewritten.folder / result, tmp_path / f"{result}.vmfb"
        applied = compile_tuned(str(rewritten.source), "cpu", folder, expected)
        assert applied.missing == {}
        for driver in DRIVERS if NATIVE else ("python",):
            output, flow = tmp_path / f"{driver}.vmfb", tmp_path / f"{driver}.mlir"
            done = drive(driver, rewritten.source, f"--felix-tuned={folder}", "--felix-print-landed", "-o", output)
            assert done.returncode == 0, done.stderr
            op, *tasks = (line.split(" ", 3) for line in done.stderr.decode().splitlines())
            assert op == ["felix:", "op", ROOT, "was rewritten"]
            assert {task[2] for task in tasks} == set(applied.landed)
            assert output.read_bytes() == expected.read_bytes()
            early = drive(driver, rewritten.source, f"--felix-tuned={folder}", TO_FLOW, "-o", flow)
            assert early.stderr.decode() == f"felix: only rewrites are applied before the phase {CONFIGURATIONS}\n"
            assert convolved(flow.read_text()) == [REWRITTEN]
    by_stock = tmp_path / "stock.vmfb"
    spec = f"{SPEC_FLAG}={rewritten.folder / 'untuned' / REWRITES_FILE_NAME}"
    assert stock(rewritten.source, *CPU.compile_flags, spec, "-o", by_stock).returncode == 0
    assert by_stock.read_bytes() == (tmp_path / "untuned.vmfb").read_bytes() != (tmp_path / "tuned.vmfb").read_bytes()
    plain = stock(rewritten.source, *CPU.compile_flags, TO_FLOW)
    assert convolved(plain.stdout.decode()) == [AS_IT_IS]


@pytest.fixture(scope="module")
def results(rewritten, example):
    """Folders of results by what is the matter with them."""
    spoilt = {
        "cut": script(ROOT)[:-60],
        "empty": "",
        "mixed": another_model().rewrites.script,
    }
    for name in ("missing", *spoilt):
        shutil.copytree(rewritten.folder / "tuned", rewritten.folder / name)
    (rewritten.folder / "missing" / REWRITES_FILE_NAME).unlink()
    for name, text in spoilt.items():
        (rewritten.folder / name / REWRITES_FILE_NAME).write_text(text)
    absent = another_model().rewrites
    rewritten.result(another_model(), "another")
    rewritten.result(replace(rewritten.tuned, rewrites=absent), "elsewhere")
    # Tasks of the model as it stands beside the rewrite of an op it does not have.
    rewritten.result(replace(example.tuned, rewrites=absent), "half")
    rewritten.result(rewritten.with_roots(ROOT, ABSENT), "partial")
    return rewritten.folder


ABSENT_LINE = f"felix: op {ABSENT} is not here: its rewrite was not applied"
LENIENT = "--felix-require-landed=false"
WORDS = [
    ("partial", (), 1, f"error: {ABSENT_LINE}"),
    ("partial", (TO_FLOW,), 1, f"error: {ABSENT_LINE}"),
    ("partial", (LENIENT,), 0, f"warning: {ABSENT_LINE}"),
    ("half", (), 1, f"error: {ABSENT_LINE}"),
    ("half", (LENIENT,), 0, f"warning: {ABSENT_LINE}"),
    (
        "elsewhere",
        (),
        2,
        "was tuned for another model or target (model.mlir): none of its ops and tasks is here\n",
    ),
    ("elsewhere", (LENIENT,), 0, "has no dispatch here"),
    ("another", (), 2, "was tuned for another model or target (another.mlir): none of its ops and tasks is here"),
    ("another", (TO_FLOW,), 2, "was tuned for another model or target"),
    ("another", (LENIENT,), 0, f"warning: {ABSENT_LINE}"),
    ("missing", (), 2, "rewrites.mlir is missing: tune again"),
    ("cut", (), 2, "rewrites.mlir is damaged: tune again"),
    ("empty", (), 2, "rewrites.mlir is damaged: tune again"),
    ("mixed", (), 2, "rewrites.mlir is damaged: tune again"),
    ("tuned", (f"{SPEC_FLAG}=mine.mlir",), 2, "tuned brings its own rewrites"),
    ("tuned", (f"{SPEC_FLAG[1:]}=mine.mlir",), 2, "tuned brings its own rewrites"),
    ("tuned", ("--compile-to=input",), 0, "felix: nothing is applied before the phase"),
]


@pytest.mark.parametrize(("result", "flags", "status", "words"), WORDS)
def test_what_became_of_rewrites_is_said_by_both_drivers(results, tmp_path, result, flags, status, words):
    said: list[str] = []
    for driver in DRIVERS if NATIVE else ("python",):
        output = tmp_path / driver
        done = drive(driver, results / "model.mlir", f"--felix-tuned={results / result}", *flags,
                     "--felix-print-landed", "-o", output)  # fmt: skip
        said.append(done.stderr.decode())
        assert done.returncode == status, said[-1]
        assert output.exists() == (status == 0)
    assert words in said[0]
    assert len(set(said)) == 1


@pytest.mark.parametrize("driver", BOTH)
def test_an_input_beyond_the_phase_has_its_rewrites_already(driver, results, tmp_path):
    """It is not looked at, unless it ends with that phase."""
    rewritten, plain = tmp_path / "rewritten.mlir", tmp_path / "plain.mlir"
    drive(driver, results / "model.mlir", f"--felix-tuned={results / 'tuned'}", TO_FLOW, "-o", rewritten)
    late = ("--compile-from=flow", "--felix-print-landed", "-o", tmp_path / "out.vmfb")
    for result, more in (("tuned", ()), ("partial", ()), ("tuned", (f"{SPEC_FLAG}={results / 'script.mlir'}",))):
        done = drive(driver, rewritten, f"--felix-tuned={results / result}", *more, *late)
        assert done.returncode == 0, done.stderr
        assert {line.split()[1] for line in done.stderr.decode().splitlines()} == {"task"}

    at = ("--compile-from=preprocessing", "--felix-print-landed", TO_FLOW, "-o", tmp_path / "flow.mlir")
    drive(driver, results / "model.mlir", f"--felix-tuned={results / 'tuned'}", TO_PREPROCESSING, "-o", rewritten)
    assert stock(results / "model.mlir", *CPU.compile_flags, TO_PREPROCESSING, "-o", plain).returncode == 0
    assert drive(driver, rewritten, f"--felix-tuned={results / 'tuned'}", *at).returncode == 0
    assert convolved((tmp_path / "flow.mlir").read_text()) == [REWRITTEN]
    assert drive(driver, plain, f"--felix-tuned={results / 'tuned'}", *at).returncode == 2
    assert drive(driver, rewritten, f"--felix-tuned={results / 'partial'}", *at).returncode == 1


@pytest.mark.parametrize("name", ["missing", "cut", "empty", "mixed"])
def test_a_result_without_its_whole_script_is_refused(results, rewritten, name):
    with pytest.raises(RequestError, match=rf"{name}/rewrites\.mlir is (missing|damaged): tune again$"):
        read_tuned(results / name, rewritten.tuned.compiler)

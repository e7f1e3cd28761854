"""What is no whole bundle is refused, and leaves nothing behind."""

from __future__ import annotations

import hashlib
import json
import lzma
import tarfile
from pathlib import Path

import pytest
from bundle_parts import RUNNER
from hypothesis import given, settings
from hypothesis import strategies as st

from felix_mlir.bundle import archive, run_bundle
from felix_mlir.bundle.archive import check_output
from felix_mlir.errors import RequestError
from felix_mlir.measure import worker

SCRATCH = "scratch"


def refusal(bundle: Path) -> str:
    """Return why a bundle is refused. Whatever is in it, only its own folder is written to."""
    folder = bundle.parent / SCRATCH
    folder.mkdir()
    try:
        with pytest.raises(run_bundle.Refused) as refused:
            run_bundle.extract(bundle, folder)
    finally:
        written = list(folder.rglob("*"))
        for path in sorted(written, reverse=True):
            assert not path.is_symlink()
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
    assert [path.name for path in bundle.parent.iterdir()] == [bundle.name]
    return str(refused.value)


def tampered(tmp_path: Path, name: str, content: bytes) -> Path:
    (folder := tmp_path / "only").mkdir(exist_ok=True)
    (path := folder / name).write_bytes(content)
    return path


def member(name: str, **fields) -> tarfile.TarInfo:
    one = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(one, field, value)
    return one


def packed(members: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """Return a tar of members, with nothing checked."""
    blocks: list[bytes] = []
    for one, content in members:
        one.size = one.size or len(content)
        blocks += [one.tobuf(tarfile.USTAR_FORMAT), content, bytes(-len(content) % tarfile.BLOCKSIZE)]
    size = sum(map(len, blocks)) + 2 * tarfile.BLOCKSIZE
    return b"".join([*blocks, bytes(2 * tarfile.BLOCKSIZE), bytes(-size % tarfile.RECORDSIZE)])


def signed(manifest: dict) -> list[tuple[tarfile.TarInfo, bytes]]:
    """Return the members every bundle begins with: a hash that is right, and a manifest."""
    text = json.dumps(manifest).encode()
    line = f"{hashlib.sha256(text).hexdigest()}  bundle.json\n".encode()
    return [(member("bundle.sha256"), line), (member("bundle.json"), text)]


def manifest_of(contents: dict[str, bytes], *used: str, **changes) -> dict:
    about = {name: {"sha256": hashlib.sha256(c).hexdigest(), "size": len(c)} for name, c in contents.items()}
    candidates = [{"file": name} for name in used]
    return {"format": 1, "tasks": [{"candidates": candidates}], "files": about, **changes}


CODE = {"code/measuring/__init__.py": b"raise SystemExit('it ran')"}


def made_up(files: dict[str, bytes], *used: str) -> bytes:
    """Return a bundle whose hashes are right, of files called whatever."""
    files = {**CODE, **files}
    return packed([*signed(manifest_of(files, *used)), *((member(n), c) for n, c in files.items())])


def test_what_is_made_up_here_would_be_taken_if_it_were_harmless(tmp_path):
    bundle = tampered(tmp_path, "b.tar", made_up({"a/b.vmfb": b"12"}, "a/b.vmfb"))
    (folder := tmp_path / "new").mkdir()
    manifest, digest = run_bundle.extract(bundle, folder)
    assert digest == hashlib.sha256((json.dumps(manifest)).encode()).hexdigest()
    assert (folder / "a" / "b.vmfb").read_bytes() == b"12"


@settings(max_examples=40, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("suffix", [".tar", ".tar.xz"])
def test_a_flipped_bit_is_refused(plain, suffix, data, tmp_path_factory):
    content = bytearray(plain.read_bytes() if suffix == ".tar" else lzma.compress(plain.read_bytes()))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    refusal(tampered(tmp_path_factory.mktemp("flipped"), f"b{suffix}", bytes(content)))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("suffix", [".tar", ".tar.xz"])
def test_a_bundle_cut_off_is_refused(plain, suffix, data, tmp_path_factory):
    content = plain.read_bytes() if suffix == ".tar" else lzma.compress(plain.read_bytes())
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    refusal(tampered(tmp_path_factory.mktemp("cut"), f"b{suffix}", cut))


@pytest.mark.parametrize(
    "name",
    ["../x", "/tmp/x", "a/../../x", "..", "a/..", "./x", "a//x", "a/", "", "C:x", "a\\..\\x", ".x", "a/.x", "a\nx", "é",
     "a" * 101, "code/measuring/__init__.py/x", "CODE/measuring/__init__.py"],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(tmp_path, name):
    files = {name: b"12"}
    text = signed(manifest_of({**CODE, **files}, name))
    contents = [(member(n), c) for n, c in {**CODE, **files}.items() if len(n) <= 100]
    bundle = tampered(tmp_path, "b.tar", packed([*text, *contents]))
    if "__init__.py/" in name:  # A folder where a file is.
        with pytest.raises(OSError):
            run_bundle.extract(bundle, tmp_path)
    else:
        assert "name" in refusal(bundle)


LINKS = {
    "a symbolic link": {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
    "a hard link": {"type": tarfile.LNKTYPE, "linkname": "code/measuring/__init__.py"},
    "a device": {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5},
    "a pipe": {"type": tarfile.FIFOTYPE},
    "a folder": {"type": tarfile.DIRTYPE},
    "a sparse file": {"type": tarfile.GNUTYPE_SPARSE},
}


@pytest.mark.parametrize("what", LINKS)
def test_what_is_no_plain_file_is_refused(tmp_path, what):
    files = {**CODE, "x": b""}
    contents = [(member(n, **(LINKS[what] if n == "x" else {})), c) for n, c in files.items()]
    bundle = tampered(tmp_path, "b.tar", packed([*signed(manifest_of(files, "x")), *contents]))
    assert "no plain file" in refusal(bundle)


def test_a_size_that_is_not_there_is_refused_before_it_is_written(tmp_path):
    files = {**CODE, "x": b"12"}
    manifest = manifest_of(files, "x")
    manifest["files"]["x"]["size"] = run_bundle.MAX_BYTES + 1
    bundle = tampered(tmp_path, "b.tar", packed(signed(manifest)))
    assert "would take more than" in refusal(bundle)
    manifest["files"]["x"]["size"] = run_bundle.MAX_BYTES // 2
    huge = member("x", size=run_bundle.MAX_BYTES // 2)
    code = [(member(n), c) for n, c in CODE.items()]
    bundle = tampered(tmp_path, "b.tar", packed([*signed(manifest), *code, (huge, b"")]))
    assert "cut off" in refusal(bundle)
    bundle = tampered(tmp_path, "b.tar", packed([(member("bundle.sha256", size=1 << 32), b"")]))
    assert "it says that bundle.sha256 has 4294967296 bytes" in refusal(bundle)
    text = signed({})
    bundle = tampered(tmp_path, "b.tar", packed([text[0], (member("bundle.json", size=1 << 32), b"")]))
    assert "it says that bundle.json has" in refusal(bundle)


def test_a_bomb_is_refused_after_little_of_it(tmp_path, plain, monkeypatch):
    read = []
    _read = run_bundle.Archive._read
    monkeypatch.setattr(run_bundle.Archive, "_read", lambda self, size: read.append(_read(self, size)) or read[-1])
    whole = plain.read_bytes()
    for start in (b"", whole):
        read.clear()
        refusal(tampered(tmp_path, "b.tar.xz", lzma.compress(start + bytes(20 << 20))))
        assert sum(map(len, read)) < len(start) + (1 << 20)


def test_other_files_than_the_manifest_lists_are_refused(tmp_path):
    files = {**CODE, "x": b"12", "y": b"34"}
    manifest = manifest_of(files, "x")
    contents = {n: (member(n), c) for n, c in files.items()}
    swapped = {**contents, "x": (member("x"), b"13")}
    cases = {
        "the hash of x": list(swapped.values()),
        "another file": [*reversed(contents.values())],
        "no plain file": [*contents.values()][:-1],
        "more in it": [*contents.values(), (member("x"), b"12")],
    }
    for reason, members in cases.items():
        bundle = tampered(tmp_path, "b.tar", packed([*signed(manifest), *members]))
        assert reason in refusal(bundle)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (manifest_of(CODE, "code/none.vmfb"), "does not hold 'code/none.vmfb'"),
        (manifest_of(CODE, "../../etc/passwd"), "does not hold '../../etc/passwd'"),
        (manifest_of({"x": b""}), "does not hold 'code/measuring/__init__.py'"),
        (manifest_of(CODE, format=2), "has format 2"),
        (manifest_of(CODE, files=[]), "makes no sense"),
        (manifest_of(CODE, files={"x": {}}), "makes no sense"),
        (manifest_of(CODE, files={"x": {"size": -1, "sha256": ""}}), "does not hold"),
        (manifest_of(CODE, tasks=[{}]), "makes no sense"),
        ([1, 2], "makes no sense"),
        (None, "makes no sense"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(tmp_path, text, reason):
    assert reason in refusal(tampered(tmp_path, "b.tar", packed(signed(text))))


@given(st.binary(max_size=2000))
@settings(max_examples=30, deadline=None)
def test_what_is_no_archive_is_refused(tmp_path_factory, content):
    for suffix in (".tar", ".tar.xz"):
        refusal(tampered(tmp_path_factory.mktemp("noise"), f"b{suffix}", content))


def test_a_refused_bundle_exits_2_in_one_line_and_nothing_of_it_runs(tmp_path, machine, plain):
    content = bytearray(plain.read_bytes())
    content[content.index(b"PK") + 200] ^= 1  # Within a module, not in what the archive says of it.
    cases = {
        "decompressed": tampered(tmp_path, "b.tar.xz", bytes(content)),
        "is wrong": tampered(tmp_path, "b.tar", bytes(content)),
        "'../x'": tampered(tmp_path, "c.tar", made_up({"../x": b"12"}, "../x")),
        "No such file": tmp_path / "missing.tar",
        "would end in": tampered(tmp_path, "b.zip", bytes(content)),
    }
    before = sorted(tmp_path.rglob("*"))
    for reason, bundle in cases.items():
        done = machine.run(bundle, "-o", tmp_path / "results.jsonl")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith("run_bundle: ") and reason in line
        assert done.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before
    assert list(machine.temporary.iterdir()) == []


@pytest.mark.parametrize("path", ["program", "zstandard"])
def test_zstd_can_be_read_with_the_program_or_the_package(tmp_path, machine, modules, plain, path, monkeypatch):
    pytest.importorskip("zstandard")
    bundle = modules.bundle(tmp_path / "b.tar.zst", task=("right", "right"))
    assert bundle.stat().st_size < plain.stat().st_size / 2
    cut = tampered(tmp_path, "b.tar.zst", bundle.read_bytes()[:3000])
    if path == "program":
        assert len(machine.run_to(tmp_path / "results.jsonl", bundle)) == 2
        done = machine.run(cut, "-o", tmp_path / "more.jsonl")
        assert (done.returncode, "cut off" in done.stderr) == (2, True)
        machine_without = {**machine.environment, "PATH": "/nowhere"}
        monkeypatch.setattr(type(machine), "environment", machine_without)
        done = machine.run(bundle, "-o", tmp_path / "more.jsonl")
        assert (done.returncode, "a .tar.xz takes nothing" in done.stderr) == (2, True)
    else:
        run_bundle.extract(bundle, tmp_path / "only")
        assert "cut off" in refusal(tampered(tmp_path / "only", "cut.tar.zst", cut.read_bytes()))


def test_names_and_sizes_that_cannot_be_written_are_refused_first(tmp_path, monkeypatch, modules):
    with pytest.raises(RequestError, match="ends in"):
        check_output(tmp_path / "b.zip")
    with pytest.raises(RequestError, match="folder that is there"):
        check_output(tmp_path / "missing" / "b.tar")
    monkeypatch.setattr(archive, "MAX_BYTES", 1000)
    with pytest.raises(RequestError, match="fewer candidates"):
        modules.bundle(tmp_path / "b.tar", task=("right",))
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(archive, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match="pip install zstandard"):
        check_output(tmp_path / "b.tar.zst")


def test_what_a_bundle_runs_is_what_is_here(plain, tmp_path):
    run_bundle.extract(plain, tmp_path)
    inside = tmp_path / "code" / "measuring"
    package = RUNNER.with_name("measuring")
    for path in (*package.glob("*.py"), Path(worker.__file__)):
        assert (inside / path.name).read_bytes() == path.read_bytes()
    assert (tmp_path / RUNNER.name).read_bytes() == RUNNER.read_bytes()

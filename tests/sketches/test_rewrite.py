"""Scripts of ops that a model has not."""

from __future__ import annotations

from configured import CPU, compile_checked
from contractions import contraction
from convolutions import NAMED, Shape, convolution
from ops import KINDS
from programs import module, preprocess

from felix_mlir.sketches import SPEC_FLAG, read_roots, replacement_symbol, rewrite_script, sketches_of


def compiled(source, output, *flags):
    compile_checked(str(source), *CPU.compile_flags, *flags, "-o", str(output))
    return output.read_bytes()


def test_ops_that_do_not_occur_change_nothing(tmp_path):
    """The program is the same byte for byte, and no function is left behind."""
    models = {kind: tmp_path / f"{kind}.mlir" for kind in ("conv2d_nchw", "matmul_column", "elementwise")}
    for kind, path in models.items():
        path.write_text(KINDS[kind])
    roots = {kind: read_roots(preprocess(path, tmp_path / f"{kind}.mlirbc")) for kind, path in models.items()}
    assert roots["elementwise"] == []
    (root,) = roots["conv2d_nchw"]
    script = tmp_path / "spec.mlir"
    script.write_text(rewrite_script([(root, sketches_of(root, 32)[0])]))
    flag = f"{SPEC_FLAG}={script}"
    for kind in ("matmul_column", "elementwise"):
        assert compiled(models[kind], tmp_path / "with.vmfb", flag) == compiled(models[kind], tmp_path / "without.vmfb")
        rewritten = preprocess(models[kind], tmp_path / "with.mlirbc", flag).read_bytes()
        assert replacement_symbol(root.id).encode() not in rewritten
        assert rewritten == (tmp_path / f"{kind}.mlirbc").read_bytes()
    assert (
        replacement_symbol(root.id).encode()
        in preprocess(models["conv2d_nchw"], tmp_path / "it.mlirbc", flag).read_bytes()
    )


def test_what_a_sketch_writes_is_not_rewritten(tmp_path):
    """A convolution becomes the product that another root op is: it stays, and the other one is not reported."""
    shape = Shape(NAMED["conv_2d_nchw_fchw"], {"n": 1, "c": 6, "f": 5, "h": 4, "w": 4}, {"h": 1, "w": 1},
                  name="conv_2d_nchw_fchw")  # fmt: skip
    conv, product = convolution("", shape), contraction("mk,kn->mn", {"m": 5, "k": 6, "n": 16}, name="matmul")
    both, alone, script = (tmp_path / name for name in ("both.mlir", "alone.mlir", "spec.mlir"))
    both.write_text(module([conv, product]))
    alone.write_text(module([conv]))
    roots = read_roots(preprocess(both, tmp_path / "both.mlirbc"))
    names = ("gemm-channels-first", "packed")
    chosen = [
        (root, next(sketch for sketch in sketches_of(root, 32) if sketch.name == name))
        for root, name in zip(roots, names, strict=True)
    ]
    script.write_text(rewrite_script(chosen))
    rewritten = preprocess(alone, tmp_path / "alone.mlirbc", f"{SPEC_FLAG}={script}")
    assert [replacement_symbol(root.id).encode() in rewritten.read_bytes() for root in roots] == [True, False]
    assert [root.id for root in read_roots(rewritten)] == [roots[1].id]

"""Small structured ops as text, several to a module, and what they compute with and without a rewrite."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import iree.runtime as rt
import numpy as np
from configured import CPU, compile_checked

from felix_mlir.sketches import SPEC_FLAG, RootOp, Sketch, read_roots, replacement_symbol, rewrite_script

# Names of variables in the generated code, which take a sixth of the time to compile it.
_FLAGS = (*CPU.compile_flags, "--iree-llvmcpu-debug-symbols=false")
_DTYPES = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "i32": np.int32}
# How far another order of float additions may be off, times the square root of their number.
_PER_TERM = 1e-5


def tensor(shape: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


@dataclass(frozen=True)
class Case:
    """An op in a function of its own: the arguments' types and the lines that make `%r` of them."""

    label: str
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    result: tuple[tuple[int, ...], str]
    lines: str

    def function(self, name: str) -> str:
        arguments = ", ".join(f"%{chr(97 + i)}: {tensor(*type_)}" for i, type_ in enumerate(self.inputs))
        result = tensor(*self.result)
        return (f"// {self.label}\nfunc.func @{name}({arguments}) -> {result} {{\n{self.lines}\n"
                f"  return %r : {result}\n}}\n")  # fmt: skip

    def arrays(self) -> list[np.ndarray]:
        rng = np.random.default_rng(len(self.label))
        return [
            rng.integers(-9, 9, shape).astype(_DTYPES[element]) if element.startswith("i")
            else rng.standard_normal(shape).astype(_DTYPES[element])
            for shape, element in self.inputs
        ]  # fmt: skip


def module(cases: Sequence[Case]) -> str:
    return "\n".join(case.function(f"op{index}") for index, case in enumerate(cases))


def zeros(name: str, shape: Sequence[int], element: str, value: str = "") -> str:
    type_ = tensor(shape, element)
    number = value or ("0" if element.startswith("i") else "0.0")
    return (f"  {name}_n = arith.constant {number} : {element}\n  {name}_e = tensor.empty() : {type_}\n"
            f"  {name} = linalg.fill ins({name}_n : {element}) outs({name}_e : {type_}) -> {type_}")  # fmt: skip


def multiply_add(element: str, out: str) -> str:
    """The body of a product of `element`s that are widened to `out` first, if they are narrower."""
    kind = "i" if out.startswith("i") else "f"
    lines = [f"  ^bb0(%p: {element}, %q: {element}, %o: {out}):"]
    p, q = "%p", "%q"
    if element != out:
        extend = "arith.extsi" if kind == "i" else "arith.extf"
        lines += [f"    %x = {extend} %p : {element} to {out}", f"    %y = {extend} %q : {element} to {out}"]
        p, q = "%x", "%y"
    lines += [f"    %m = arith.mul{kind} {p}, {q} : {out}", f"    %s = arith.add{kind} %o, %m : {out}",
              f"    linalg.yield %s : {out}"]  # fmt: skip
    return "\n".join(lines)


def generic(maps: Sequence[str], loops: str, reduced: str, operands: str, body: str, result: str) -> str:
    """A linalg.generic `%r`; `maps` in letters of `loops`, of which `reduced` are reductions."""
    header = ", ".join(loops)
    listed = ", ".join(f"affine_map<({header}) -> ({map_})>" for map_ in maps)
    kinds = ", ".join('"reduction"' if letter in reduced else '"parallel"' for letter in loops)
    return (f"  %r = linalg.generic {{indexing_maps = [{listed}], iterator_types = [{kinds}]}} {operands} {{\n"
            f"{body}\n  }} -> {result}")  # fmt: skip


def preprocess(source: Path, output: Path, *flags: str) -> Path:
    """Compile to the phase root ops are read at."""
    compile_checked(str(source), *CPU.compile_flags, *flags, "--compile-to=preprocessing",
                    "--emit-mlir-bytecode", "-o", str(output))  # fmt: skip
    return output


def run(vmfb: Path, cases: Sequence[Case]) -> list[np.ndarray]:
    """Call every function of a compiled module with its case's arguments."""
    config = rt.Config("local-task")
    context = rt.SystemContext(config=config)
    context.add_vm_module(rt.VmModule.mmap(config.vm_instance, str(vmfb)))
    functions = context.modules.module
    return [functions[f"op{index}"](*case.arrays()).to_host().copy() for index, case in enumerate(cases)]


@dataclass(frozen=True)
class Original:
    """A case, its root op, and what it computes as it stands."""

    case: Case
    root: RootOp
    result: np.ndarray

    @property
    def allowed(self) -> float:
        """How far another order of its sums may be off: nothing for integers and maxima."""
        sums = self.root.multiplies_and_adds or self.root.combines_with == "arith.addf"
        if self.case.result[1].startswith("i") or not sums:
            return 0.0
        return _PER_TERM * math.sqrt(math.prod(self.root.extents[loop] for loop in self.root.reduction_loops))


def compile_originals(cases: Sequence[Case], folder: Path) -> list[Original]:
    """Compile cases as they stand; each must be read as one root op."""
    source = folder / "model.mlir"
    source.write_text(module(cases))
    roots = read_roots(preprocess(source, folder / "model.mlirbc"))
    assert len(roots) == len(cases), "a case is no root op, or two are the same"
    compile_checked(str(source), *_FLAGS, "-o", str(folder / "model.vmfb"))
    return [Original(*parts) for parts in zip(cases, roots, run(folder / "model.vmfb", cases), strict=True)]


def sketch_errors(
    originals: Sequence[Original], sketches: Callable[[RootOp], Iterable[Sketch]], folder: Path
) -> list[dict[str, float]]:
    """Compile every sketch of every op and return by name how far its results are off, for each op.

    The i-th sketch of all ops that have so many is compiled at once. That each replaced its op is checked.
    """
    ways = [list(sketches(original.root)) for original in originals]
    errors = [dict.fromkeys((sketch.name for sketch in way), math.nan) for way in ways]
    assert [len(each) for each in errors] == [len(way) for way in ways], "two sketches of an op have one name"

    def check(column: int) -> None:
        which = [index for index, way in enumerate(ways) if column < len(way)]
        chosen = [ways[index][column] for index in which]
        results = _rewritten([originals[index] for index in which], chosen, folder / f"sketch{column}")
        for index, sketch, result in zip(which, chosen, results, strict=True):
            difference = result.astype(np.float64) - originals[index].result.astype(np.float64)
            errors[index][sketch.name] = float(np.abs(difference).max())

    with ThreadPoolExecutor(CPU.cores) as pool:
        list(pool.map(check, range(max(map(len, ways)))))
    return errors


def _rewritten(originals: Sequence[Original], sketches: Sequence[Sketch], folder: Path) -> list[np.ndarray]:
    folder.mkdir()
    source, script, vmfb = folder / "model.mlir", folder / "spec.mlir", folder / "model.vmfb"
    cases, roots = [original.case for original in originals], [original.root for original in originals]
    source.write_text(module(cases))
    script.write_text(rewrite_script(list(zip(roots, sketches, strict=True))))
    flag = f"{SPEC_FLAG}={script}"
    rewritten = preprocess(source, folder / "model.mlirbc", flag)
    left, symbols = {root.id for root in read_roots(rewritten)}, rewritten.read_bytes()
    for root, sketch in zip(roots, sketches, strict=True):
        assert root.id not in left, f"{sketch.name} is not applied to {root.pattern}"
        assert replacement_symbol(root.id).encode() in symbols
    compile_checked(str(source), *_FLAGS, flag, "-o", str(vmfb))
    return run(vmfb, cases)


def check_sketches(
    cases: Sequence[Case], sketches: Callable[[RootOp], Iterable[Sketch]], folder: Path
) -> list[list[str]]:
    """Check that every sketch of every case replaces its op and computes the same; returns their names by case."""
    originals = compile_originals(cases, folder)
    errors = sketch_errors(originals, sketches, folder)
    wrong = [
        f"{name} of {original.case.label}: off by {error}, allowed {original.allowed}"
        for original, of_op in zip(originals, errors, strict=True)
        for name, error in of_op.items()
        # Written so that what is no number is wrong too.
        if not error <= original.allowed
    ]
    assert wrong == []
    return [list(of_op) for of_op in errors]

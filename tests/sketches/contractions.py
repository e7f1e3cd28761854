"""Drawn contractions: named ops and sums of products in the notation of numpy's einsum."""

from __future__ import annotations

import numpy as np
from programs import Case, generic, multiply_add, tensor, zeros

# Operands of named ops, in the same notation.
NAMED = {
    "matmul": "mk,kn->mn",
    "matvec": "mk,k->m",
    "vecmat": "k,kn->n",
    "batch_matmul": "bmk,bkn->bmn",
}
TRANSPOSED = ["mk,nk->mn", "km,nk->nm", "bmk,bnk->bmn"]
SEVERAL = ["bmk,kn->bmn", "bmk,bnk->mbn", "mpkq,qkn->nmp", "kmb,nbk->mnb", "pk,kp->"]
SIZES = (1, 2, 3, 7, 8, 13, 17, 24)


def contraction(
    spec: str, sizes: dict[str, int], element: str = "f32", out: str = "f32", name: str = "", *, adds: bool = False
) -> Case:
    """A contraction that adds to zeros, or to an argument."""
    layouts, result = spec.split("->")
    a, b = layouts.split(",")
    shapes = [tuple(sizes[letter] for letter in letters) for letters in (a, b, result)]
    types = [tensor(shape, kind) for shape, kind in zip(shapes, (element, element, out), strict=True)]
    inputs = [(shapes[0], element), (shapes[1], element)]
    init = "" if adds else zeros("%z", shapes[2], out)
    if adds:
        inputs.append((shapes[2], out))
    operands = f"ins(%a, %b : {types[0]}, {types[1]}) outs({'%c' if adds else '%z'} : {types[2]})"
    if name:
        op = f"  %r = linalg.{name} {operands} -> {types[2]}"
    else:
        reduced = "".join(letter for letter in a if letter not in result)
        maps = [", ".join(letters) for letters in (a, b, result)]
        op = generic(maps, result + reduced, reduced, operands, multiply_add(element, out), types[2])
    return Case(f"{name} {spec} {sizes} {element}", tuple(inputs), (shapes[2], out), f"{init}\n{op}")


def draw_sizes(rng: np.random.Generator, spec: str) -> dict[str, int]:
    large = {letter: int(rng.choice(SIZES)) for letter in "mnk"}
    return {letter: large.get(letter) or int(rng.integers(1, 4)) for letter in spec if letter.isalpha()}


def drawn_cases(rng: np.random.Generator) -> list[Case]:
    cases = [
        contraction(spec, draw_sizes(rng, spec), name=name, adds=rng.random() < 0.5) for name, spec in NAMED.items()
    ]
    cases += [contraction(spec, draw_sizes(rng, spec), adds=rng.random() < 0.5) for spec in (*TRANSPOSED, *SEVERAL)]
    narrow = [("mk,kn->mn", "f16", "f32"), ("bmk,bnk->bmn", "i8", "i32")]
    cases += [contraction(spec, draw_sizes(rng, spec), element, out) for spec, element, out in narrow]
    return cases


def special_cases() -> list[Case]:
    """Sizes that some sketches are only for: one row or column, nearly whole tiles, many terms."""
    return [
        contraction("mk,kn->mn", {"m": 1, "n": 37, "k": 19}, name="matmul"),
        contraction("mk,kn->mn", {"m": 37, "n": 1, "k": 19}, name="matmul", adds=True),
        contraction("mk,kn->mn", {"m": 63, "n": 47, "k": 5}, name="matmul"),
        contraction("bmk,bkn->bmn", {"b": 2, "m": 8, "n": 31, "k": 3}, name="batch_matmul", adds=True),
        contraction("mk,nk->mn", {"m": 3, "n": 5, "k": 1290}),
        contraction("pk,qpk->q", {"q": 7, "p": 3, "k": 1024}, "i8", "i32", adds=True),
        contraction("k,k->", {"k": 2048}, name="dot", adds=True),
    ]

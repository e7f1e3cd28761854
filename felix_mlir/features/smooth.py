"""The smooth stand-ins for rounding, comparing and choosing, each in two versions.

*Sharp* versions pass through the exact value at every integer point: the step of `a > b` climbs from a = b to
a = b + 1 (its middle half a unit beyond the threshold), the steps of `floor(n/k)` from n = qk - 1 to n = qk. They
are C¹, with slopes of the size of the integer function's own differences. *Blurred* versions follow the trend over
many units: `floor(n/k)` becomes its average over n, comparisons a sigmoid in the relative difference. `relaxed` mixes
the two by temperature. All are homogeneous enough to serve sizes from 1 to millions without a width to tune.

Arguments are tensors (or numbers) that broadcast; every function has its derivative written out, because
one autograd node per operation instead of a dozen is what makes a program of thousands of nodes fast.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from typing_extensions import override

# Relative width of a blurred comparison and relative corner of a blurred minimum.
_GATE_WIDTH = 0.25
_CORNER = 0.25
_TINY = 1e-9

Derivatives = tuple[Tensor, Tensor, Tensor]  # the value, then d/da and d/db


def _smoothstep(u: Tensor) -> tuple[Tensor, Tensor]:
    u = u.clamp(0.0, 1.0)
    return u * u * (3.0 - 2.0 * u), 6.0 * u * (1.0 - u)


def sharp_floor(n: Tensor, k: Tensor) -> Derivatives:
    """floor(n/k), exact at integers n and k >= 1."""
    q = torch.floor((n + 0.5) / k + 0.5)  # the jump nearest to n + 1/2
    offset = n + 0.5 - q * k
    # Below k = 1 steps would overlap; narrower ones keep the function continuous there.
    width = k.clamp(max=1.0)
    step, slope = _smoothstep(offset / width + 0.5)
    slope = slope / width
    return q - 1.0 + step, slope, -slope * (q + (k < 1.0) * offset / width)


def blurred_floor(n: Tensor, k: Tensor) -> Derivatives:
    """(n - r)/k with r a smooth remainder: near n while n is small against k, (k - 1)/2 on average beyond."""
    half = (k - 1.0) / 2.0
    n_size, half_size = n.abs() + _TINY, half.abs() + _TINY
    total = n_size + half_size
    value = (n - n * half / total) / k
    by_n = (1.0 - half * half_size / (total * total)) / k
    by_k = -(value + 0.5 * n * n_size / (total * total)) / k
    return value, by_n, by_k


def sharp_greater(a: Tensor, b: Tensor) -> Derivatives:
    """a > b, exact at integers."""
    step, slope = _smoothstep(a - b)
    return step, slope, -slope


def blurred_greater(a: Tensor, b: Tensor) -> Derivatives:
    """An algebraic sigmoid of (a - b - 1/2) over the size of a and b."""
    a_size, b_size = torch.sqrt(a * a + 1.0), torch.sqrt(b * b + 1.0)
    scale = 0.5 * (a_size + b_size)
    z = (a - b - 0.5) / (_GATE_WIDTH * scale)
    root = torch.rsqrt(1.0 + z * z)
    slope = 0.5 * root * root * root / scale
    by_a = slope * (1.0 / _GATE_WIDTH - 0.5 * z * a / a_size)
    by_b = slope * (-1.0 / _GATE_WIDTH - 0.5 * z * b / b_size)
    return 0.5 + 0.5 * z * root, by_a, by_b


def sharp_maximum(a: Tensor, b: Tensor) -> Derivatives:
    """max(a, b), exact at integers: between a = b and a = b + 1 a cubic joins the two arms."""
    d = a - b
    u = d.clamp(0.0, 1.0)
    by_a = torch.where(d < 1.0, u * (4.0 - 3.0 * u), 1.0)
    return b + torch.where(d < 1.0, u * u * (2.0 - u), d), by_a, 1.0 - by_a


def blurred_maximum(a: Tensor, b: Tensor) -> Derivatives:
    """A hyperbola whose corner is as wide as the arguments are large; `a + b -` it is positive for positive ones."""
    d = a - b
    like_signed = (a * b > 0.0) * (2.0 * _CORNER * _CORNER)
    root = torch.sqrt(d * d + 2.0 * like_signed * a * b + _TINY)
    by_a = 0.5 * (1.0 + (d + like_signed * b) / root)
    by_b = 0.5 * (1.0 + (-d + like_signed * a) / root)
    return 0.5 * (a + b + root), by_a, by_b


_PAIRS = {
    "floor": (sharp_floor, blurred_floor),
    "greater": (sharp_greater, blurred_greater),
    "maximum": (sharp_maximum, blurred_maximum),
}


class _Both(torch.autograd.Function):
    @staticmethod
    @override
    def forward(ctx: Any, name: str, a: Tensor, b: Tensor) -> Tensor:
        sharp, blurred = _PAIRS[name]
        value, by_a, by_b = map(torch.stack, zip(sharp(a[0], b[0]), blurred(a[1], b[1]), strict=True))
        ctx.save_for_backward(by_a, by_b)
        return value

    @staticmethod
    @override
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  # the decorator hides the name of `ctx`
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[None, Tensor, Tensor]:
        by_a, by_b = ctx.saved_tensors
        return None, grad_outputs[0] * by_a, grad_outputs[0] * by_b


def both(name: str, a: Tensor, b: Tensor) -> Tensor:
    """Apply "floor" (of a/b), "greater" (a > b) or "maximum" to [2, ...] tensors of one shape.

    Row 0 is the sharp version of rows 0, row 1 the blurred one of rows 1.
    """
    return _Both.apply(name, a, b)  # type: ignore[no-any-return]

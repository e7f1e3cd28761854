"""Writing the function that replaces a root op: MLIR on tensors, one op a call."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from typing_extensions import override


@dataclass(frozen=True)
class Tensor:
    """A tensor type: static shape and the element type as MLIR spells it."""

    shape: tuple[int, ...]
    element_type: str

    @override
    def __str__(self) -> str:
        return f"tensor<{''.join(f'{size}x' for size in self.shape)}{self.element_type}>"

    def of_shape(self, shape: Sequence[int]) -> Tensor:
        return Tensor(tuple(shape), self.element_type)

    def of_type(self, element_type: str) -> Tensor:
        return Tensor(self.shape, element_type)


@dataclass(frozen=True)
class Value:
    """An SSA value of the function being written."""

    name: str
    type: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape


class Writer:
    """Writes one function, op by op; ops that would change nothing are left out."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = tuple(Value(f"%arg{index}", type_) for index, type_ in enumerate(parameters))
        self._lines: list[str] = []
        self._zeros: dict[str, str] = {}
        # Tensors of zeros: in another shape they are new ones, not those moved.
        self._filled: set[Value] = set()

    def function(self, name: str, result: Value) -> str:
        """Return the function, which yields `result`.

        Its name is the location of every op in it, which survives into the dispatches.
        """
        signature = ", ".join(f"{value.name}: {value.type}" for value in self.parameters)
        # A file location of no path: with a bare name the compiler does not make the same module twice.
        lines = [f'{line} loc("{name}":1:1)' for line in self._lines]
        body = "\n".join(f"    {line}" for line in (*lines, f"util.return {result.name} : {result.type}"))
        return f"  util.func private @{name}({signature}) -> {result.type} {{\n{body}\n  }}\n"

    def transpose(self, value: Value, permutation: Sequence[int]) -> Value:
        """Return `value` with dimension i of the result taken from dimension permutation[i]."""
        if list(permutation) == sorted(permutation):
            return value
        type_ = value.type.of_shape([value.shape[dim] for dim in permutation])
        if value in self._filled:
            return self.zeros(type_)
        if all(value.shape[dim] == 1 for dim in _moved(value.shape, permutation)):
            return self.reshape(value, type_.shape)
        into = self.empty(type_)
        order = ", ".join(map(str, permutation))
        return self._op(
            f"linalg.transpose ins({value.name} : {value.type}) outs({into.name} : {into.type}) "
            f"permutation = [{order}]",
            type_,
        )

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """Return the elements of `value`, in the same order, in another shape."""
        if tuple(shape) == value.shape:
            return value
        if value in self._filled:
            return self.zeros(value.type.of_shape(shape))
        if not (value.shape and shape):
            # A single element has no dimensions to group.
            type_ = value.type.of_shape(shape)
            op = (
                f"collapse_shape {value.name} []"
                if value.shape
                else f"expand_shape {value.name} [] output_shape {list(shape)}"
            )
            return self._op(f"tensor.{op} : {value.type} into {type_}", type_)
        blocks = matching_blocks(value.shape, shape)
        sizes = [math.prod(value.shape[dim] for dim in before) for before, _ in blocks]
        if len(sizes) < len(value.shape):
            type_ = value.type.of_shape(sizes)
            groups = _grouped([before for before, _ in blocks])
            value = self._op(f"tensor.collapse_shape {value.name} {groups} : {value.type} into {type_}", type_)
        if len(sizes) < len(shape):
            type_ = value.type.of_shape(shape)
            groups = _grouped([after for _, after in blocks])
            value = self._op(
                f"tensor.expand_shape {value.name} {groups} output_shape [{', '.join(map(str, shape))}] : "
                f"{value.type} into {type_}",
                type_,
            )
        return value

    def slice(self, value: Value, offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> Value:
        """Return the elements at offset + i * stride of every dimension."""
        if tuple(sizes) == value.shape:
            return value
        type_ = value.type.of_shape(sizes)
        where = "".join(f"[{', '.join(map(str, numbers))}]" for numbers in (offsets, sizes, strides))
        return self._op(f"tensor.extract_slice {value.name}{where} : {value.type} to {type_}", type_)

    def insert(self, value: Value, into: Value, offsets: Sequence[int]) -> Value:
        """Return `into` with `value` written at `offsets`."""
        where = "".join(f"[{', '.join(map(str, ns))}]" for ns in (offsets, value.shape, [1] * len(offsets)))
        return self._op(f"tensor.insert_slice {value.name} into {into.name}{where} : {value.type} into {into.type}",
                        into.type)  # fmt: skip

    def pad(self, value: Value, low: Sequence[int], high: Sequence[int]) -> Value:
        """Return `value` with zeros around it."""
        if not any((*low, *high)):
            return value
        type_ = value.type.of_shape([lo + n + hi for lo, n, hi in zip(low, value.shape, high, strict=True)])
        if value in self._filled:
            return self.zeros(type_)
        zero = self.zero(value.type.element_type)
        arguments = ", ".join(f"%i{dim}: index" for dim in range(len(low)))
        return self._op(
            f"tensor.pad {value.name} low[{', '.join(map(str, low))}] high[{', '.join(map(str, high))}] {{\n"
            f"    ^bb0({arguments}):\n      tensor.yield {zero} : {value.type.element_type}\n"
            f"    }} : {value.type} to {type_}",
            type_,
        )

    def zero(self, element_type: str) -> str:
        """Return the name of the constant zero."""
        if element_type not in self._zeros:
            literal = "0" if element_type.startswith("i") else "0.0"
            name = f"%zero_{element_type}"
            self._lines.append(f"{name} = arith.constant {literal} : {element_type}")
            self._zeros[element_type] = name
        return self._zeros[element_type]

    def empty(self, type_: Tensor) -> Value:
        return self._op(f"tensor.empty() : {type_}", type_)

    def zeros(self, type_: Tensor) -> Value:
        into = self.empty(type_)
        zeros = self._op(
            f"linalg.fill ins({self.zero(type_.element_type)} : {type_.element_type}) "
            f"outs({into.name} : {type_}) -> {type_}",
            type_,
        )
        self._filled.add(zeros)
        return zeros

    def pack(self, value: Value, dims: tuple[int, int], tiles: Sequence[int]) -> Value:
        """Return the two `dims`, which are the last ones, in tiles of `tiles`, with zeros where they are not full.

        The result is [leading, tiles of dims[0], tiles of dims[1], *tiles]; with one tile size dims[1] stays whole.
        """
        type_ = value.type.of_shape(_packed_shape(value.shape, dims, tiles))
        if value in self._filled:
            return self.zeros(type_)
        is_ragged = any(value.shape[dim] % tile for dim, tile in zip(dims, tiles, strict=False))
        element = value.type.element_type
        padding = f" padding_value({self.zero(element)} : {element})" if is_ragged else ""
        into = self.empty(type_)
        where = _tiling(len(value.shape), dims, tiles)
        return self._op(f"linalg.pack {value.name}{padding} {where} into {into.name} : {value.type} -> {type_}", type_)

    def unpack(self, value: Value, type_: Tensor, dims: tuple[int, int], tiles: Sequence[int]) -> Value:
        """Return the tensor of `type_` whose `pack` by the same numbers is `value`."""
        into = self.empty(type_)
        where = _tiling(len(type_.shape), dims, tiles)
        return self._op(f"linalg.unpack {value.name} {where} into {into.name} : {value.type} -> {type_}", type_)

    def named(self, op: str, inputs: Sequence[Value], init: Value, attributes: str = "") -> Value:
        """Write a named linalg op."""
        return self._op(f"linalg.{op}{attributes} {_operands(inputs, init)} -> {init.type}", init.type)

    def generic(
        self, maps: Sequence[str], iterator_types: Sequence[str], inputs: Sequence[Value], init: Value, body: str
    ) -> Value:
        """Write a linalg.generic; a map is the text behind the arrow, in loops d0, d1, ..."""
        loops = ", ".join(f"d{loop}" for loop in range(len(iterator_types)))
        listed = ", ".join(f"affine_map<({loops}) -> ({map_})>" for map_ in maps)
        kinds = ", ".join(f'"{kind}"' for kind in iterator_types)
        return self._op(
            f"linalg.generic {{indexing_maps = [{listed}], iterator_types = [{kinds}]}} "
            f"{_operands(inputs, init)} {{\n{body}\n    }} -> {init.type}",
            init.type,
        )

    def folded(self, maps: Sequence[str], rows: Sequence[Sequence[Value]], init: Value, body: str) -> Value:
        """Apply `body` to one row of inputs after another, from `init` on: each yields what the next one adds to.

        `maps` has the map of each input of a row, in the loops of `init`. Of the arguments of `body` the last is what
        it adds to; one for which the rows have no input must not be used.
        """
        arguments: list[str] = []
        lines: list[str] = []
        so_far = "%init"
        for number, row in enumerate(rows):
            text = re.sub(r"%(\w+)", rf"%row{number}_\1", body)
            header, *ops, yielded = text.strip().splitlines()
            *names, total = re.findall(r"(%\w+):", header)
            arguments += [f"{name}: {value.type.element_type}" for name, value in zip(names, row, strict=False)]
            lines += [re.sub(rf"{total}\b", so_far, op) for op in ops]
            so_far = re.findall(r"%\w+", yielded)[0]
        element = init.type.element_type
        header = f"    ^bb0({', '.join(arguments)}, %init: {element}, %to: {element}):"
        loops = range(len(init.shape))
        identity = ", ".join(f"d{loop}" for loop in loops)
        text = "\n".join([header, *lines, f"      linalg.yield {so_far} : {element}"])
        inputs = [value for row in rows for value in row]
        all_maps = [*list(maps) * len(rows), identity, identity]
        return self.generic(all_maps, ["parallel"] * len(loops), [*inputs, init], self.empty(init.type), text)

    def copy(self, value: Value, map_: str, type_: Tensor) -> Value:
        """Gather `value` into a tensor of `type_`: element d0, d1, ... is the one at `map_`."""
        identity = ", ".join(f"d{dim}" for dim in range(len(type_.shape)))
        element = type_.element_type
        body = f"    ^bb0(%from: {element}, %to: {element}):\n      linalg.yield %from : {element}"
        return self.generic([map_, identity], ["parallel"] * len(type_.shape), [value], self.empty(type_), body)

    def add(self, a: Value, b: Value) -> Value:
        """Return the sum of two tensors of one type."""
        identity = ", ".join(f"d{dim}" for dim in range(len(a.shape)))
        element = a.type.element_type
        body = (
            f"    ^bb0(%a: {element}, %b: {element}, %to: {element}):\n"
            f"      %sum = {_addition(element)} %a, %b : {element}\n      linalg.yield %sum : {element}"
        )
        return self.generic([identity] * 3, ["parallel"] * len(a.shape), [a, b], self.empty(a.type), body)

    def add_up(self, parts: Value, init: Value) -> Value:
        """Return the sum over the first dimension of `parts`, added to `init`."""
        dims = ", ".join(f"d{dim}" for dim in range(len(parts.shape)))
        kept = ", ".join(f"d{dim}" for dim in range(1, len(parts.shape)))
        element = init.type.element_type
        body = (
            f"    ^bb0(%part: {element}, %to: {element}):\n"
            f"      %sum = {_addition(element)} %to, %part : {element}\n      linalg.yield %sum : {element}"
        )
        return self.generic([dims, kept], ["reduction", *["parallel"] * len(init.shape)], [parts], init, body)

    def op(self, text: str, type_: Tensor) -> Value:
        """Write any other op with one result of `type_`; `text` is what follows the equals sign."""
        return self._op(text, type_)

    def _op(self, text: str, type_: Tensor) -> Value:
        value = Value(f"%v{len(self._lines)}", type_)
        self._lines.append(f"{value.name} = {text}")
        return value


def matching_blocks(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Divide two shapes of equal element order into the smallest runs of dimensions that hold equally many elements."""
    blocks: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        ours, theirs = list(range(i, min(i + 1, len(before)))), list(range(j, min(j + 1, len(after))))
        if blocks and not (ours and theirs):
            # Only units are left on one side.
            ours, theirs = list(range(i, len(before))), list(range(j, len(after)))
            blocks[-1] = (blocks[-1][0] + ours, blocks[-1][1] + theirs)
            break
        i, j = i + 1, j + 1
        while (ours_n := math.prod(before[d] for d in ours)) != (theirs_n := math.prod(after[d] for d in theirs)):
            if ours_n < theirs_n:
                ours.append(i)
                i += 1
            else:
                theirs.append(j)
                j += 1
        blocks.append((ours, theirs))
    return blocks


def _moved(shape: Sequence[int], permutation: Sequence[int]) -> list[int]:
    """Dimensions that a permutation moves past another one of more than one element."""
    large = [dim for dim in permutation if shape[dim] > 1]
    return [dim for dim, kept in zip(large, sorted(large), strict=True) if dim != kept]


def _addition(element_type: str) -> str:
    return "arith.addi" if element_type.startswith("i") else "arith.addf"


def _packed_shape(shape: Sequence[int], dims: Sequence[int], tiles: Sequence[int]) -> tuple[int, ...]:
    counts = [-(-shape[dim] // tile) for dim, tile in zip_longest(dims, tiles, fillvalue=1)]
    return (*shape[: len(shape) - len(dims)], *counts, *tiles)


def _tiling(rank: int, dims: Sequence[int], tiles: Sequence[int]) -> str:
    """Return how pack and unpack are told that of the last dimensions, in the order of `dims`, the first are tiled."""
    return (
        f"outer_dims_perm = {[*range(rank - len(dims)), *dims]} inner_dims_pos = {list(dims[: len(tiles)])} "
        f"inner_tiles = {list(tiles)}"
    )


def _grouped(groups: Sequence[Sequence[int]]) -> str:
    return f"[{', '.join(str(list(group)) for group in groups)}]"


def _operands(inputs: Sequence[Value], init: Value) -> str:
    names = ", ".join(value.name for value in inputs)
    types = ", ".join(str(value.type) for value in inputs)
    return f"ins({names} : {types}) outs({init.name} : {init.type})"

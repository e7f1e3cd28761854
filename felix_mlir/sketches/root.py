"""Root ops of a model before dispatches are formed: structured ops on tensors, read into plain data."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from felix_mlir.schedule.dispatch import PARALLEL, REDUCTION, walk
from felix_mlir.sketches.writer import Tensor

_PRODUCTS = {("arith.mulf", "arith.addf"), ("arith.muli", "arith.addi")}
_GENERALIZE = "builtin.module(util.func(linalg-generalize-named-ops))"


class UnreadableOpError(Exception):
    """No sketch can be derived for the op; the message is the reason."""


@dataclass(frozen=True)
class Index:
    """One index of an operand: the sum of loop times coefficient."""

    terms: tuple[tuple[int, int], ...]

    @property
    def loop(self) -> int | None:
        """The loop, if the index is one loop as it stands."""
        return self.terms[0][0] if len(self.terms) == 1 and self.terms[0][1] == 1 else None


@dataclass(frozen=True)
class Stuffing:
    """The input is the result of writing `before` into zeros at `offsets` with `strides`: a transposed convolution."""

    before: Tensor
    offsets: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class RootOp:
    """A linalg op with one result whose body uses its operands alone.

    `pattern` is MLIR that only equal ops match: a function of the op's operands. `indices` has the indices of every
    operand, the output last, `tensors` their types, `body` the region of the op as linalg.generic has it.
    `multiplies_and_adds` says that the body adds the product of its two inputs, widened to the output's type;
    `combines_with` is the op that combines the output's element with the first input's, "" if that is not all. With
    `stuffing` the pattern begins where the first input is made: its first argument is what is spread out. With
    `adds_to_zero` it holds the zeros the op adds to, which are no argument. `locations` has one for each such op of the
    model, as MLIR prints it. `constants` says which parameters are the model's weights in all of them: what is made of
    those alone is made before the model runs.
    """

    name: str
    pattern: str
    iterator_types: tuple[str, ...]
    extents: tuple[int, ...]
    indices: tuple[tuple[Index, ...], ...]
    tensors: tuple[Tensor, ...]
    scalar_ops: tuple[str, ...]
    body: str
    multiplies_and_adds: bool
    combines_with: str
    stuffing: Stuffing | None = None
    adds_to_zero: bool = False
    locations: tuple[str, ...] = ()
    constants: tuple[bool, ...] = ()

    @property
    def id(self) -> str:
        return hashlib.sha256(self.pattern.encode()).hexdigest()[:12]

    @property
    def output(self) -> Tensor:
        return self.tensors[-1]

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Types of the arguments of `pattern`, and of every function that replaces it."""
        first = self.tensors[0] if self.stuffing is None else self.stuffing.before
        return (first, *(self.tensors[1:-1] if self.adds_to_zero else self.tensors[1:]))

    @property
    def reduction_loops(self) -> tuple[int, ...]:
        return tuple(loop for loop, kind in enumerate(self.iterator_types) if kind == REDUCTION)

    @property
    def uses_a_loop_twice(self) -> bool:
        """Whether an operand is read along a diagonal."""
        return any(
            sum(len(index.terms) for index in indices) != len(self.loops_of(operand))
            for operand, indices in enumerate(self.indices)
        )

    def loops_of(self, operand: int) -> frozenset[int]:
        return frozenset(loop for index in self.indices[operand] for loop, _ in index.terms)


def read_roots(preprocessing: Path) -> list[RootOp]:
    """Return the ops with a reduction in a model at the `preprocessing` phase (bytecode or text).

    Equal ops are one, in order of appearance. Ops nothing can be derived for (dynamic shapes, bodies that use values
    from outside, several results) are left out.
    """
    with ir.Context() as context, ir.Location.unknown():
        module = ir.Module.parse(preprocessing.read_bytes(), context)
        found: dict[str, RootOp] = {}
        weights: set[ir.Value] = set()
        for op in walk(module.operation):
            if _is_weight(op, weights):
                weights.update(op.results)
            if not op.name.startswith("linalg.") or len(op.regions) != 1 or len(op.results) != 1:
                continue
            try:
                root = read_root(op, weights)
            except UnreadableOpError:
                continue
            if root.reduction_loops:
                found[root.pattern] = _merged(found.get(root.pattern), root)
        return list(found.values())


def _merged(known: RootOp | None, root: RootOp) -> RootOp:
    """Return one root op for two of the same pattern."""
    if known is None:
        return root
    constants = tuple(a and b for a, b in zip(known.constants, root.constants, strict=True))
    return replace(known, locations=known.locations + root.locations, constants=constants)


def read_root(op: ir.Operation, weights: Collection[ir.Value] = ()) -> RootOp:
    """Read one linalg op of a model with `weights`; raises UnreadableOpError when nothing can be derived for it."""
    tensors = tuple(_tensor(value.type) for value in op.operands)
    if any(_is_captured(value, inner) for inner in walk(op) if inner != op for value in inner.operands):
        raise UnreadableOpError("its body uses values from outside")
    if any(inner.name == "linalg.index" for inner in walk(op)):
        raise UnreadableOpError("its body depends on the order of its loops")
    stuffing = _stuffing(op.operands[0]) if len(op.operands) > 1 else None
    zeros = _zeros(op.operands[-1])
    producers = [*(_stuffing_ops(op.operands[0]) if stuffing is not None else ()), *zeros]
    arguments = _arguments(op, producers)
    if len(set(arguments)) != len(arguments):
        raise UnreadableOpError("it takes one value twice")
    pattern = _pattern(op, producers)
    module = _clone_into_function(op, ())
    manager = PassManager.parse(_GENERALIZE, op.context)  # pyright: ignore[reportAttributeAccessIssue]  (no stub)
    manager.run(module.operation)
    generic = next((inner for inner in walk(module.operation) if inner.name == "linalg.generic"), None)
    if generic is None:
        raise UnreadableOpError(f"{op.name} is not a structured op")
    maps = [attribute.value for attribute in ir.ArrayAttr(generic.attributes["indexing_maps"])]
    indices = tuple(tuple(_index(expr) for expr in map_.results) for map_ in maps)
    block = generic.regions[0].blocks[0]
    iterator_types = tuple(_iterator(attribute) for attribute in ir.ArrayAttr(generic.attributes["iterator_types"]))
    return RootOp(
        name=op.name,
        pattern=pattern,
        iterator_types=iterator_types,
        extents=_extents(indices, tensors, len(iterator_types)),
        indices=indices,
        tensors=tensors,
        scalar_ops=tuple(
            inner.operation.name for inner in block if inner.operation.name.split(".")[0] in ("arith", "math")
        ),
        body=_body(generic),
        multiplies_and_adds=_multiplies_and_adds(block),
        combines_with=_combines_with(block),
        stuffing=stuffing,
        adds_to_zero=bool(zeros),
        locations=(str(op.location),),
        constants=tuple(argument in weights for argument in arguments),
    )


def _tensor(type_: ir.Type) -> Tensor:
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape or type_.encoding is not None:
        raise UnreadableOpError(f"an operand is a {type_}")
    return Tensor(tuple(type_.shape), str(type_.element_type))


def _is_weight(op: ir.Operation, weights: Collection[ir.Value]) -> bool:
    """Whether what an op yields is a weight, or made of `weights` alone."""
    if op.name in ("util.global.load", "arith.constant", "tensor.empty"):
        return True
    return len(op.operands) > 0 and all(operand in weights for operand in op.operands)


def _is_captured(value: ir.Value, user: ir.Operation) -> bool:
    owner = value.owner
    block = owner if isinstance(owner, ir.Block) else owner.operation.block
    return block != user.block


def _clone_into_function(op: ir.Operation, producers: Sequence[ir.Operation]) -> ir.Module:
    """Return a module with one function of `producers` and `op`; what they take from elsewhere are its arguments."""
    arguments = _arguments(op, producers)
    signature = ", ".join(f"%arg{index}: {value.type}" for index, value in enumerate(arguments))
    module = ir.Module.parse(
        f"util.func private @op({signature}) -> {op.results[0].type} {{\n  util.unreachable\n}}", op.context
    )
    block = module.body.operations[0].operation.regions[0].blocks[0]
    end = block.operations[0].operation
    values = dict(zip(arguments, block.arguments, strict=True))
    point = ir.InsertionPoint(end)
    for source in (*producers, op):
        clone = source.clone(point)
        for index, operand in enumerate(source.operands):
            clone.operands[index] = values[operand]
        values.update(zip(source.results, clone.results, strict=True))
    ir.Operation.create("util.return", operands=[values[op.results[0]]], ip=point)
    end.erase()
    return module


def _arguments(op: ir.Operation, producers: Sequence[ir.Operation]) -> list[ir.Value]:
    """Return what the root op and its producers take, in the order of the op's operands."""
    return [value for operand in op.operands for value in _sources(operand, producers)]


def _sources(value: ir.Value, producers: Sequence[ir.Operation]) -> list[ir.Value]:
    """Return what `value` is made of outside of `producers`."""
    maker = next((op for op in producers if value in list(op.results)), None)
    return [value] if maker is None else [v for operand in maker.operands for v in _sources(operand, producers)]


def _pattern(op: ir.Operation, producers: Sequence[ir.Operation]) -> str:
    module = _clone_into_function(op, producers)
    return module.body.operations[0].operation.get_asm(use_local_scope=True)


def _index(expr: ir.AffineExpr) -> Index:
    if isinstance(expr, ir.AffineDimExpr):
        return Index(((expr.position, 1),))
    if isinstance(expr, ir.AffineAddExpr):
        return Index((*_index(expr.lhs).terms, *_index(expr.rhs).terms))
    if isinstance(expr, ir.AffineMulExpr) and isinstance(expr.lhs, ir.AffineDimExpr):
        factor = expr.rhs
        if isinstance(factor, ir.AffineConstantExpr):
            return Index(((expr.lhs.position, factor.value),))
    raise UnreadableOpError(f"it has the index {expr}")


def _iterator(attribute: ir.Attribute) -> str:
    return REDUCTION if REDUCTION in str(attribute) else PARALLEL


def _extents(indices: Sequence[Sequence[Index]], tensors: Sequence[Tensor], loops: int) -> tuple[int, ...]:
    extents = [0] * loops
    for operand, tensor in zip(indices, tensors, strict=True):
        for index, size in zip(operand, tensor.shape, strict=True):
            if index.loop is not None:
                extents[index.loop] = size
    if 0 in extents:
        raise UnreadableOpError("a loop has no operand dimension that bounds it")
    return tuple(extents)


def _body(generic: ir.Operation) -> str:
    text = generic.get_asm(use_local_scope=True)
    return text[text.index("{\n", text.index("outs(")) + 2 : text.rindex("}")].rstrip()


def _multiplies_and_adds(block: ir.Block) -> bool:
    name, added = _combined(block)
    product = _owner(added)
    if product is None or (product.name, name) not in _PRODUCTS or len(block.arguments) != 3:
        return False
    factors = [_before_widening(value) for value in product.operands]
    return all(argument in factors for argument in list(block.arguments)[:2])


def _combines_with(block: ir.Block) -> str:
    name, value = _combined(block)
    return name if value == block.arguments[0] else ""


def _combined(block: ir.Block) -> tuple[str, ir.Value]:
    """Return the op that yields the output's element combined with another value, and that value.

    The op is "" if the body yields something else.
    """
    out = block.arguments[len(block.arguments) - 1]
    (yielded,) = block.operations[len(block.operations) - 1].operation.operands
    last = _owner(yielded)
    if last is None or len(last.operands) != 2 or out not in list(last.operands):
        return "", out
    a, b = last.operands
    return last.name, b if a == out else a


def _before_widening(value: ir.Value) -> ir.Value:
    """Return what a number was before it was widened; named ops take one bit as unsigned, so that stays."""
    op = _owner(value)
    if op is None or op.name not in ("arith.extf", "arith.extsi") or str(op.operands[0].type) == "i1":
        return value
    return op.operands[0]


def _zeros(value: ir.Value) -> list[ir.Operation]:
    """Return the ops that make a tensor of zeros, producers first; none if `value` is anything else."""
    fill = _owner(value)
    if fill is None or fill.name != "linalg.fill":
        return []
    constant, empty = (_owner(operand) for operand in fill.operands)
    if constant is None or empty is None or constant.name != "arith.constant" or empty.name != "tensor.empty":
        return []
    number = constant.attributes["value"]
    is_zero = isinstance(number, ir.FloatAttr | ir.IntegerAttr) and number.value == 0
    return [constant, empty, fill] if is_zero else []


def _stuffing_ops(value: ir.Value) -> list[ir.Operation]:
    """Return the ops that spread a tensor out over zeros, producers first; none if `value` is not made like that."""
    insert = _owner(value)
    if insert is None or insert.name != "tensor.insert_slice":
        return []
    zeros = _zeros(insert.operands[1])
    return [*zeros, insert] if zeros else []


def _owner(value: ir.Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _stuffing(value: ir.Value) -> Stuffing | None:
    ops = _stuffing_ops(value)
    if not ops:
        return None
    insert = ops[-1]
    offsets, sizes, strides = (
        tuple(ir.DenseI64ArrayAttr(insert.attributes[f"static_{name}"])) for name in ("offsets", "sizes", "strides")
    )
    before = _tensor(insert.operands[0].type)
    # Sizes that are not those of the tensor, or not known, are none of a transposed convolution.
    return Stuffing(before, offsets, strides) if sizes == before.shape and min(offsets) >= 0 else None

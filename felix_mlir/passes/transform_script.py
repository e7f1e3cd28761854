"""Transform ops that look at a function, written one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iree.compiler import ir


def _strings(texts: Sequence[str]) -> ir.Attribute:
    return ir.ArrayAttr.get([ir.StringAttr.get(text) for text in texts])


def _i64(number: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


def _fill(
    matcher: ir.Operation, pattern: Sequence[ir.Operation], inputs: Sequence[ir.Value], without: Sequence[str] = ()
) -> None:
    """Copy `pattern` into a matcher; `inputs` are the values it uses and does not make."""
    block = matcher.regions[0].blocks.append(*(value.type for value in inputs))
    values = dict(zip(inputs, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for original in pattern:
            clone = original.clone()
            for number, operand in enumerate(original.operands):
                clone.operands[number] = values[operand]
            for name in set(without) & set(clone.attributes):
                del clone.attributes[name]
            values |= dict(zip(original.results, clone.results, strict=True))
        ir.Operation.create("transform.yield")


class Script:
    """A block of transform ops; `argument` is a handle to what it is run on."""

    def __init__(self, block: ir.Block) -> None:
        self._block = block
        self._any_op = ir.Type.parse("!transform.any_op")
        self._any_value = ir.Type.parse("!transform.any_value")
        self._integer = ir.Type.parse("!transform.param<i64>")

    @staticmethod
    def of_library(library: ir.Module, name: str) -> Script:
        """Return the block of a new named sequence in a library, which uses up the handle it is given."""
        kind = ir.FunctionType.get([ir.Type.parse("!transform.any_op")], [])
        attributes = {
            "sym_name": ir.StringAttr.get(name),
            "function_type": ir.TypeAttr.get(kind),
            "arg_attrs": ir.Attribute.parse("[{transform.consumed}]"),
        }
        with ir.InsertionPoint(library.body):
            op = ir.Operation.create("transform.named_sequence", regions=1, attributes=attributes)
        return Script(op.regions[0].blocks.append(*kind.inputs))

    @property
    def argument(self) -> ir.Value:
        return self._block.arguments[0]

    def end(self, results: Sequence[ir.Value] = ()) -> None:
        self._add("transform.yield", results)

    def discard(self) -> None:
        """Take back the block, and what it is in."""
        self._block.owner.operation.erase()

    def attempts(self, handle: ir.Value) -> Script:
        """Return a block to run on an op, in which every op is run whether or not those before it failed."""
        return self._sequence(handle, "2 : i32")

    def attempt(self, handle: ir.Value) -> Script:
        """Return a block to run on an op; it fails when one of its ops does."""
        return self._sequence(handle, "1 : i32")

    def run_pass(self, handle: ir.Value, name: str) -> ir.Value:
        """Run a pass on an op; the handle to it is used up and there is a new one."""
        return self._add("transform.apply_registered_pass", [handle], [self._any_op],
                         {"pass_name": ir.StringAttr.get(name), "options": ir.DictAttr.get({})}).result  # fmt: skip

    def annotate(self, handle: ir.Value, name: str, value: str) -> None:
        parameter = self._add("transform.param.constant", [], [ir.Type.parse("!transform.any_param")],
                              {"value": ir.Attribute.parse(value)})  # fmt: skip
        self._add("transform.annotate", [handle, parameter.result], [], {"name": ir.StringAttr.get(name)})

    def matching(
        self, handle: ir.Value, names: Sequence[str], attributes: Mapping[str, ir.Attribute] | None = None,
        operands: Sequence[ir.Type] = (),
    ) -> ir.Value:  # fmt: skip
        """Return the ops in `handle`, itself included, with one of `names`, these attributes and operand types."""
        filters: dict[str, ir.Attribute] = {"ops": _strings(names)}
        if attributes:
            filters["op_attrs"] = ir.DictAttr.get(dict(attributes))
        if operands:
            filters["filter_operand_types"] = ir.ArrayAttr.get([ir.TypeAttr.get(type_) for type_ in operands])
        return self._add("transform.structured.match", [handle], [self._any_op], filters).result

    def split(self, handle: ir.Value, count: int) -> list[ir.Value]:
        """Return a handle for each op of `handle`; fails if they are not `count`."""
        strict = {"pass_through_empty_handle": ir.BoolAttr.get(False)}
        return list(self._add("transform.split_handle", [handle], [self._any_op] * count, strict).results)

    def check_name(self, handle: ir.Value, name: str) -> None:
        self._add("transform.match.operation_name", [handle], [], {"op_names": _strings([name])})

    def check_count(self, handle: ir.Value, count: int) -> None:
        number = self._add("transform.num_associations", [handle], [self._integer]).result
        wanted = self._add("transform.param.constant", [], [self._integer], {"value": _i64(count)}).result
        self._add("transform.match.param.cmpi", [number, wanted], [], {"predicate": ir.Attribute.parse("0 : i32")})

    def check_distinct(self, handles: Sequence[ir.Value], count: int) -> None:
        """Fail unless `handles` are `count` different ops or values."""
        merged = self._add("transform.merge_handles", handles, [handles[0].type], {"deduplicate": ir.UnitAttr.get()})
        self.check_count(merged.result, count)

    def producer(self, handle: ir.Value, operand: int) -> ir.Value:
        number = {"operand_number": _i64(operand)}
        return self._add("transform.get_producer_of_operand", [handle], [self._any_op], number).result

    def operand(self, handle: ir.Value, number: int) -> ir.Value:
        return self._value("transform.get_operand", handle, number)

    def result(self, handle: ir.Value, number: int) -> ir.Value:
        return self._value("transform.get_result", handle, number)

    def check_shape(self, handle: ir.Value, operand: int, shape: Sequence[int]) -> None:
        """Fail unless an operand of an op has these sizes."""
        value = self.operand(handle, operand)
        for dim, size in enumerate(shape):
            bounds = {"dim": _i64(dim), "lower_bound": _i64(size), "upper_bound": _i64(size)}
            self._add("transform.iree.match.dim_bounds", [value], [], bounds)

    def check_ops(
        self, handle: ir.Value, pattern: Sequence[ir.Operation], inputs: Sequence[ir.Value], without: Sequence[str] = ()
    ) -> ir.Value:
        """Fail unless the op is like the last of `pattern`, made of the others and of `inputs`; returns the inputs.

        Attributes named in `without` do not count.
        """
        name = "transform.iree.match.cast_compatible_dag_from_root"
        return self._check(handle, name, [self._any_value, self._any_value], pattern, inputs, without).results[0]

    def check_regions(self, handle: ir.Value, pattern: ir.Operation, without: Sequence[str] = ()) -> None:
        """Fail unless the op has the regions of `pattern`; attributes named in `without` are not written."""
        inputs = list(dict.fromkeys(pattern.operands))
        self._check(handle, "transform.iree.match.regions", [], [pattern], inputs, without)

    def _check(
        self, handle: ir.Value, name: str, results: Sequence[ir.Type],
        pattern: Sequence[ir.Operation], inputs: Sequence[ir.Value], without: Sequence[str],
    ) -> ir.Operation:  # fmt: skip
        """Add a matcher with a region, in a block of its own.

        The compiler parses a library under a lock, and verifies ops that are isolated from above, like this one, in
        parallel if an op holds two of them. Threads that wait for that take up other work, and with it the same lock.
        """
        inner = self._nested("transform.foreach", handle, results)
        matcher = inner._add(name, [inner.argument], results, regions=1)
        _fill(matcher, pattern, inputs, without)
        inner.end(matcher.results)
        return inner._block.owner.operation

    def _sequence(self, handle: ir.Value, mode: str) -> Script:
        attributes = {
            "failure_propagation_mode": ir.Attribute.parse(mode),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0]),
        }
        return self._nested("transform.sequence", handle, [], attributes)

    def _nested(
        self, name: str, handle: ir.Value, results: Sequence[ir.Type],
        attributes: Mapping[str, ir.Attribute] | None = None,
    ) -> Script:  # fmt: skip
        op = self._add(name, [handle], results, attributes, 1)
        return Script(op.regions[0].blocks.append(self._any_op))

    def _value(self, name: str, handle: ir.Value, number: int) -> ir.Value:
        position = {"raw_position_list": ir.DenseI64ArrayAttr.get([number])}
        return self._add(name, [handle], [self._any_value], position).result

    def _add(
        self, name: str, operands: Sequence[ir.Value], results: Sequence[ir.Type] = (),
        attributes: Mapping[str, ir.Attribute] | None = None, regions: int = 0,
    ) -> ir.Operation:  # fmt: skip
        with ir.InsertionPoint(self._block):
            return ir.Operation.create(
                name, results=list(results), operands=list(operands), attributes=dict(attributes or {}), regions=regions
            )

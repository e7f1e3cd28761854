"""Named sequences of the transform dialect, written op by op."""

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
    """A named sequence that takes and returns handles to ops; it is in no module."""

    def __init__(self, name: str, arguments: int, results: int, effect: str = "readonly") -> None:
        self._any_op = ir.Type.parse("!transform.any_op")
        self._any_value = ir.Type.parse("!transform.any_value")
        self._integer = ir.Type.parse("!transform.param<i64>")
        kind = ir.FunctionType.get([self._any_op] * arguments, [self._any_op] * results)
        self._op = ir.Operation.create(
            "transform.named_sequence",
            regions=1,
            attributes={
                "sym_name": ir.StringAttr.get(name),
                "function_type": ir.TypeAttr.get(kind),
                "arg_attrs": ir.Attribute.parse(f"[{', '.join([f'{{transform.{effect}}}'] * arguments)}]"),
            },
        )
        self._block = self._op.regions[0].blocks.append(*kind.inputs)

    @property
    def arguments(self) -> list[ir.Value]:
        return list(self._block.arguments)

    def finish(self, results: Sequence[ir.Value] = ()) -> ir.Operation:
        """Return the sequence, which returns these handles."""
        self._add("transform.yield", results)
        return self._op

    def include(self, name: str, arguments: Sequence[ir.Value], results: int) -> list[ir.Value]:
        """Run another sequence; a failure in it is one of this sequence."""
        mode = ir.Attribute.parse("1 : i32")
        attributes = {"target": ir.FlatSymbolRefAttr.get(name), "failure_propagation_mode": mode}
        return list(self._add("transform.include", arguments, [self._any_op] * results, attributes).results)

    def run_pass(self, handle: ir.Value, name: str) -> ir.Value:
        """Run a pass on an op; the handle to it is used up and there is a new one."""
        return self._add("transform.apply_registered_pass", [handle], [self._any_op],
                         {"pass_name": ir.StringAttr.get(name), "options": ir.DictAttr.get({})}).result  # fmt: skip

    def foreach_match(self, handle: ir.Value, sequences: Mapping[str, str]) -> None:
        """Run on the op, and on those in it, the sequence of the first matcher that does not fail; uses it up."""
        attributes = {
            "restrict_root": ir.UnitAttr.get(),
            "matchers": ir.ArrayAttr.get([ir.FlatSymbolRefAttr.get(name) for name in sequences]),
            "actions": ir.ArrayAttr.get([ir.FlatSymbolRefAttr.get(name) for name in sequences.values()]),
        }
        self._add("transform.foreach_match", [handle], [self._any_op], attributes)

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
        op = self._add(name, [handle], [self._any_value, self._any_value], regions=1)
        _fill(op, pattern, inputs, without)
        return op.results[0]

    def check_regions(self, handle: ir.Value, pattern: ir.Operation, without: Sequence[str] = ()) -> None:
        """Fail unless the op has the regions of `pattern`; attributes named in `without` are not written."""
        op = self._add("transform.iree.match.regions", [handle], regions=1)
        _fill(op, [pattern], list(dict.fromkeys(pattern.operands)), without)

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

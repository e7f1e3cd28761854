"""The canonical form of a configured dispatch: the same text for dispatches that need the same code.

Names, locations, the order of independent ops, the values of constant tensors, the bindings and the tile sizes do
not show in it; ops, types, attributes, how they are connected and the executable target do. The pass in C++
(passes/canonical.cpp) writes the same text.
"""

from __future__ import annotations

from iree.compiler import ir

from felix_mlir.schedule.dispatch import LOWERING_CONFIG, ROOT_OP

_NO_STRUCTURE = (LOWERING_CONFIG, ROOT_OP, "sym_name")
# Where in which buffer an operand lies depends on the model around the dispatch.
_BINDING = "hal.interface.binding.subspan"


def canonical_form(function: ir.Operation) -> str:
    """Return the form of a dispatch function at the executable-configurations phase.

    The first line is the executable target, then every op has one, operands before users:
    `%number = name(operands) {attributes} : result types`. Blocks begin with `^(argument types)`, regions lie
    between lines of one brace.
    """
    form = _Form()
    form.lines.append(f"target {{{_target_of(function)}}}")
    form.region(function.regions[0])
    return "\n".join(form.lines)


def difference(form: str, other: str) -> str | None:
    """Say in what two forms differ if it is not the ops and how they are connected; None if it is."""
    lines, others = form.split("\n"), other.split("\n")
    if [_skeleton(line) for line in lines] != [_skeleton(line) for line in others]:
        return None
    for line, theirs in zip(lines, others, strict=True):
        if line == theirs:
            continue
        if line.startswith("target "):
            return "it is for another executable target"
        name = _skeleton(line).split(" = ")[-1].split("(")[0]
        types, their_types = line.rsplit("} : ", 1)[-1], theirs.rsplit("} : ", 1)[-1]
        if types != their_types:
            return f"{name} has type {types} here, {their_types} there"
        return f"{name} has other attributes"
    return ""


def _skeleton(line: str) -> str:
    return "^" if line.startswith("^") else line.split(" {")[0]


def _target_of(function: ir.Operation) -> ir.Attribute:
    op = function
    while op.name != "hal.executable.variant":
        op = op.parent.operation
    return op.attributes["target"]


class _Form:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[ir.Value, str] = {}
        self._done: set[ir.Operation] = set()
        self._numbers: dict[str, int] = {}
        self._ops = 0
        self._blocks = 0

    def region(self, region: ir.Region) -> None:
        for block in region:
            types = [self._argument(argument) for argument in block.arguments]
            self._blocks += 1
            self.lines.append(f"^({', '.join(types)})")
            for op in block:
                if not any(True for result in op.operation.results for _ in result.uses):
                    self._op(op.operation)

    def _argument(self, argument: ir.BlockArgument) -> str:
        self._names[argument] = f"%b{self._blocks}.{argument.arg_number}"
        return _type(str(argument.type))

    def _op(self, wanted: ir.Operation) -> None:
        """Write an op behind all that its operands come from, depth first."""
        open_ops = [wanted]
        while open_ops:
            op = open_ops[-1]
            missing = next((made for made in _makers(op) if made not in self._done), None)
            if missing is not None:
                open_ops.append(missing)
                continue
            open_ops.pop()
            self._write(op)

    def _write(self, op: ir.Operation) -> None:
        self._done.add(op)
        is_binding = op.name == _BINDING
        operands = [] if is_binding else [self._names[operand] for operand in op.operands]
        attributes = [] if is_binding else sorted(_attributes(op))
        types = [_type(str(result.type)) for result in op.results]
        text = f"{op.name}({', '.join(operands)}) {{{', '.join(attributes)}}} : {', '.join(types)}"
        # Whether equal ops have been merged depends on which passes ran: those without regions count once.
        is_twin = text in self._numbers
        number = self._numbers[text] if is_twin else self._ops
        for result in op.results:
            self._names[result] = f"%{number}" if len(types) == 1 else f"%{number}#{result.result_number}"
        if is_twin:
            return
        self._ops += 1
        self.lines.append(f"%{number} = {text}")
        if not is_binding and types and not op.regions:
            self._numbers[text] = number
        for region in op.regions:
            self.lines.append("{")
            self.region(region)
            self.lines.append("}")


def _makers(op: ir.Operation) -> list[ir.Operation]:
    if op.name == _BINDING:
        return []
    return [operand.owner.operation for operand in op.operands if not isinstance(operand.owner, ir.Block)]


def _attributes(op: ir.Operation) -> list[str]:
    return [f"{name} = {_attribute(str(op.attributes[name]))}" for name in op.attributes if name not in _NO_STRUCTURE]


def _attribute(text: str) -> str:
    if text.startswith("@"):
        return "@"
    if text.startswith("dense"):
        return f"dense : {text.rsplit(' : ', 1)[-1]}"
    return text


def _type(text: str) -> str:
    """A type without where in a buffer it lies: a binding by what it holds, a memref by shape and element type."""
    if text.startswith("memref<"):
        return f"{text.split(',')[0].rstrip('>')}>"
    return "buffer" if text.startswith("!iree_tensor_ext.dispatch.tensor<") else text

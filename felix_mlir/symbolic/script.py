"""A template as a transform-dialect script. One writer, three readings of its knobs.

`tuning_script` leaves knobs open as `transform.tune.knob` (registered in upstream MLIR's and torch-mlir's bindings,
not in IREE's) or fixes them as `transform.param.constant` (what any MLIR interpreter runs); `symbolic_script` takes
them from the payload, as handles to the ops that load them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from felix_mlir.schedule import GpuTemplate, GpuTileLevel, TileLevel
from felix_mlir.schedule.template import ScheduleTemplate, Size
from felix_mlir.symbolic.gpu import gpu_steps
from felix_mlir.symbolic.open_sizes import known_sizes, named, open_sizes, options_of
from felix_mlir.symbolic.structure import Step, Structure, inputs, steps
from felix_mlir.symbolic.tags import ANCHOR, COPY, KNOB, LEVEL, LOOPS, OP

_ANY = "!transform.any_op"
_PARAM = "!transform.param<i64>"
_HANDLE = f"({_ANY}) -> {_ANY}"
# Levels whose loops hold the root op's own copies of the ops around it.
_INNERMOST = (TileLevel.VECTOR_COMMON_PARALLEL, GpuTileLevel.SUBGROUP, GpuTileLevel.THREAD)


def tuning_script(
    template: ScheduleTemplate,
    fixed: Mapping[str, int] | None = None,
    structure: Structure | None = None,
    chosen: Mapping[str, int] | None = None,
) -> str:
    """Return the script with the knobs in `fixed` as constants and the others open.

    `structure` is that of the candidates meant (all levels, if not given); `chosen` are sizes that open knobs show as
    selected. With all knobs fixed `iree-opt --transform-interpreter` runs it on the template's payload.
    """
    values = fixed or {}
    sizes = open_sizes(template)
    selected = known_sizes(sizes, chosen or {})

    def declare(name: str) -> str:
        options = ", ".join(f"{option} : i64" for option in options_of(sizes[name], template))
        selection = f"= {selected[name]} : i64 from " if name in selected else ""
        # The size that an expression of knobs gives is a knob here: the dialect does not calculate with them.
        return f'transform.tune.knob<"{sizes[name]}"> {selection}options = [{options}] -> {_PARAM}'

    # The bindings that know tune.knob and IREE's parser spell the options of structured.fuse differently.
    is_open = any(knob.name not in values for knob in template.knobs)
    options = "{apply_cleanup, use_forall}" if is_open else "apply_cleanup use_forall"
    return _Writer(template, structure or Structure(), values, _PARAM, declare, options).text()


def symbolic_script(
    template: ScheduleTemplate, fixed: Mapping[str, int] | None = None, structure: Structure | None = None
) -> str:
    """Return the script that tiles a symbolic payload: each size is what an op tagged with the knob's name yields.

    `fixed` and `structure` as in `tuning_script`.
    """

    def declare(name: str) -> str:
        return f'transform.structured.match attributes {{{KNOB} = "{name}"}} in %root : {_HANDLE}'

    return _Writer(template, structure or Structure(), fixed or {}, _ANY, declare, "apply_cleanup use_forall").text()


class _Writer:
    """Writes the steps of a template; an open size is a handle of type `open_type` that `declare` introduces."""

    def __init__(
        self,
        template: ScheduleTemplate,
        structure: Structure,
        fixed: Mapping[str, int],
        open_type: str,
        declare: Callable[[str], str],
        fuse_options: str,
    ) -> None:
        self._template = template
        self._open = open_sizes(template)
        planned = gpu_steps(template) if isinstance(template, GpuTemplate) else steps(template, structure)
        self._steps = [replace(s, sizes=tuple(named(size, self._open) for size in s.sizes)) for s in planned]
        self._fixed = known_sizes(self._open, fixed)
        self._open_type = open_type
        self._declare = declare
        self._fuse_options = fuse_options
        self._lines: list[str] = []
        self._names = 0
        # Where the current copy of every op is.
        self._scope = "%root"
        self._owned = inputs(template.dispatch, is_recomputing=bool(structure.recomputing))
        self._outside = sorted({step.op for step in self._steps if step.is_outside})

    def text(self) -> str:
        used = {size for step in self._steps for size in step.sizes}
        for name in self._open:
            if name in used:
                value = self._fixed.get(name)
                declared = (
                    self._declare(name) if value is None else f"transform.param.constant {value} : i64 -> {_PARAM}"
                )
                self._add(f"%{name} = {declared}")
        self._add(f'%function = transform.structured.match ops{{["func.func"]}} in %root : {_HANDLE}')
        for step in self._steps:
            self._write(step)
        body = "\n".join(f"    {line}" for line in self._lines)
        return (
            "module attributes {transform.with_named_sequence} {\n"
            f"  transform.named_sequence @__transform_main(%root: {_ANY} {{transform.readonly}}) {{\n"
            f"{body}\n    transform.yield\n  }}\n}}\n"
        )

    def _add(self, line: str) -> None:
        self._lines.append(line)

    def _new(self, stem: str) -> str:
        self._names += 1
        return f"%{stem}_{self._names}"

    def _match(self, op: int, scope: str, copy: int | None = None) -> str:
        name = self._new("op")
        marked = "" if copy is None else f", {COPY} = {copy} : i64"
        attributes = f"{{{OP} = {op} : i64{marked}}}"
        self._add(f"{name} = transform.structured.match attributes {attributes} in {scope} : {_HANDLE}")
        return name

    def _annotate(self, target: str, key: str, value: str) -> None:
        name = self._new("mark")
        self._add(f"{name} = transform.param.constant {value} -> !transform.any_param")
        self._add(f'transform.annotate {target} "{key}" = {name} : {_ANY}, !transform.any_param')

    def _write(self, step: Step) -> None:
        op = self._template.dispatch.ops[step.op]
        tiled = ", ".join(f"d{op.dims[loop]}" for loop in step.loops)
        self._add(f"// {step.level}: {op.name} {step.op} over {tiled}")
        if step.is_parallel:
            self._fuse(step)
        elif step.is_outside:
            self._for_each(self._match(step.op, "%root", copy=0), step)
        elif op.is_root:
            self._tile_root(step)
        else:
            self._for_each(self._match(step.op, self._scope), step)
        # Equal tiles of a producer with several consumers become one, what fusion left without a use goes. Patterns
        # that simplify loops stay out: a loop of one trip is still a level.
        self._add("transform.apply_patterns to %function {")
        self._add("  transform.apply_patterns.memref.resolve_ranked_shaped_type_result_dims")
        self._add(f"}} : {_ANY}")
        self._add(f"transform.apply_cse to %function : {_ANY}")
        self._add(f"transform.apply_dce to %function : {_ANY}")

    def _fuse(self, step: Step) -> None:
        target = self._match(step.op, "%root")
        tiled, loop = self._new("tiled"), self._new("forall")
        types = ", ".join([_ANY, *self._size_types(step)])
        interchange = f"interchange {list(step.order)} " if step.order else ""
        self._add(
            f"{tiled}, {loop} = transform.structured.fuse {target} tile_sizes {self._sizes(step)} "
            f"{interchange}{self._fuse_options} : ({types}) -> ({_ANY}, {_ANY})"
        )
        self._mark(loop, step, step.loops)
        if step.level is not TileLevel.VECTOR_INNER_PARALLEL:
            self._own_inputs(loop)
        if step.level in _INNERMOST:
            self._scope = loop
            if self._outside and step.op == self._template.dispatch.root_index:
                for op in self._outside:
                    self._annotate(self._match(op, loop), COPY, "1 : i64")

    def _own_inputs(self, loop: str) -> None:
        """Give the root op its own copy of what its reduction loops will fuse.

        Fusing an op with other consumers into an scf.for crashes the interpreter; equal ops with different marks are
        not merged.
        """
        root = self._template.dispatch.root_index
        handles: dict[int, str] = {}
        for made in self._owned:
            if made.consumer not in handles:
                handles[made.consumer] = self._match(root, loop)
            producer = handles[made.producer] = self._new("op")
            operand = f"{handles[made.consumer]}[{made.operand}]"
            self._add(f"{producer} = transform.get_producer_of_operand {operand} : {_HANDLE}")
            self._annotate(producer, COPY, "1 : i64")

    def _tile_root(self, step: Step) -> None:
        target = self._match(step.op, "%root")
        around = self._new("around")
        self._add(f"{around} = transform.get_parent_op {target} : {_HANDLE}")
        producers = [self._match(op, around, copy=1) for op in reversed(step.fused)]
        inner = self._tile(target, step)[-1]
        for producer in producers:
            fused, new = self._new("fused"), self._new("for")
            self._add(
                f"{fused}, {new} = transform.structured.fuse_into_containing_op {producer} into {inner} : "
                f"({_ANY}, {_ANY}) -> ({_ANY}, {_ANY})"
            )
            inner = new

    def _for_each(self, targets: str, step: Step) -> None:
        """Tile however many ops `targets` holds."""
        each = self._new("each")
        self._add(f"transform.foreach {targets} : {_ANY} {{")
        self._add(f"^bb0({each}: {_ANY}):")
        self._tile(each, step)
        self._add("}")

    def _tile(self, target: str, step: Step) -> list[str]:
        """Tile one op with one loop per size; returns the loops, outermost first."""
        tiled = self._new("tiled")
        loops = [self._new("for") for _ in step.loops]
        results = ", ".join([_ANY] * (1 + len(loops)))
        self._add(
            f"{', '.join([tiled, *loops])} = transform.structured.tile_using_for {target} tile_sizes "
            f"{self._sizes(step)} : ({', '.join([_ANY, *self._size_types(step)])}) -> ({results})"
        )
        for name, loop in zip(loops, step.loops, strict=True):
            self._mark(name, step, (loop,))
        return loops

    def _sizes(self, step: Step) -> str:
        return f"[{', '.join(_operand(size) for size in step.sizes)}]"

    def _size_types(self, step: Step) -> Iterator[str]:
        return (_PARAM if size in self._fixed else self._open_type for size in step.sizes if isinstance(size, str))

    def _mark(self, loop: str, step: Step, loops: tuple[int, ...]) -> None:
        self._annotate(loop, LEVEL, f'"{step.level}"')
        self._annotate(loop, ANCHOR, f"{step.op} : i64")
        self._annotate(loop, LOOPS, f"[{', '.join(f'{i} : i64' for i in loops)}]")


def _operand(size: Size) -> str:
    return f"%{size}" if isinstance(size, str) else str(size)

"""Shardy's and MLIR's attributes as plain data: shardings, lists of axes, element types.

Where an operation comes from: JAX writes its name stack and the Python frames into each MLIR location.

`loc("jit(f)/jvp()/while/body/mul"(callsite("block"("model.py":20:8 to :30) at "f"("train.py":7:4 to :9))))`: the name
stack is the outermost name, the frames follow from the innermost outwards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardviz.notation import Axis, Spec
from shardviz.notation.scan import unescaped
from shardviz.records import Frame
from shardviz.records.source import innermost, phase

_AXIS = re.compile(r'"((?:[^"\\]|\\.)*)"(?::\((\d+)\)(\d+))?')
_DIMENSION = re.compile(r'\{((?:"(?:[^"\\]|\\.)*"|[^{}"])*)\}')


def spec_of(attribute: Any) -> Spec:
    """The spec that a `#sdy.sharding` attribute says."""
    sharding = sdy.TensorShardingAttr(attribute)
    dims = tuple(tuple(_axis(a) for a in sdy.DimensionShardingAttr(d).axes) for d in sharding.dimension_shardings)
    return Spec(dims, tuple(_axis(a) for a in sharding.unreduced_axes))


def _axis(attribute: Any) -> Axis:
    reference = sdy.AxisRefAttr(attribute)
    part = reference.sub_axis_info
    if part is None:
        return reference.name
    part = sdy.SubAxisInfoAttr(part)
    return reference.name, part.pre_size, part.size


def axes_of(text: str) -> tuple[Axis, ...]:
    """The axes in an attribute's text, in order, each once."""
    found = _AXIS.findall(text)
    return tuple(dict.fromkeys((unescaped(n), int(p), int(s)) if s else unescaped(n) for n, p, s in found))


def dtype_of(text: str) -> str:
    """NumPy's name of an MLIR element type."""
    if text == "i1":
        return "bool"
    if text == "bf16":
        return "bfloat16"
    if text[:2] == "ui":
        return f"uint{text[2:]}"
    if text[0] == "i" and text[1:].isdecimal():
        return f"int{text[1:]}"
    if text.startswith("complex"):
        return "complex64" if "f32" in text else "complex128"
    if text[0] == "f" and text[1:].isdecimal():
        return f"float{text[1:]}"
    return _float8(text)


def _float8(text: str) -> str:
    """`f8E4M3FN` → `float8_e4m3fn`."""
    return f"float{text[1]}_{text[2:].lower()}" if text[0] == "f" and text[1:2].isdecimal() else text


def axes_by_dimension(text: str) -> list[tuple[Axis, ...]]:
    """The axes of each dimension in an attribute such as `#sdy<list_of_axis_ref_lists[{"data"}, {}]>`."""
    return [axes_of(dimension) for dimension in _DIMENSION.findall(text)]


def call_target(op: ir.Operation) -> str:
    """What a `stablehlo.custom_call` calls; empty where it says none."""
    attributes = op.attributes
    return ir.StringAttr(attributes["call_target_name"]).value if "call_target_name" in attributes else ""


_NAME = re.compile(r'^loc\("((?:[^"\\]|\\.)*)"[()]')
_FRAME = re.compile(r'"((?:[^"\\]|\\.)*)"\("((?:[^"\\]|\\.)*)":(\d+):')


@dataclass(frozen=True)
class Place:
    """Where an operation comes from.

    Attributes:
        name_stack: JAX's name stack, the operation's name included.
        frame: the innermost line of the person's code.
    """

    name_stack: str
    frame: Frame | None

    @property
    def op(self) -> str:
        """The operation's own name, the last of the name stack."""
        return self.name_stack.rsplit("/", 1)[-1]

    def phase(self, differentiated: bool) -> str:
        """`forward`, `backward`, `rematerialised` or `update`."""
        return phase(self.name_stack, differentiated=differentiated)


def within(place: Place, caller: Place | None) -> Place:
    """The place of an operation of a function that is called at `caller`; None in the main function.

    JAX lowers a nested function once, with name stacks that start at it; where they start at the program, they stay.
    """
    if caller is None:
        return place
    root = caller.name_stack.split("/", 1)[0]
    whole = place.name_stack.startswith(f"{root}/") and not caller.name_stack.endswith(f"/{root}")
    name = place.name_stack if whole else f"{caller.name_stack}/{place.name_stack}".rstrip("/")
    return Place(name, place.frame or caller.frame)


def place_of(location: Any, known: dict[Any, Place]) -> Place:
    """Reads a location; `known` keeps what was read, as a module's locations are the same under every plan."""
    key = location.attr  # attributes hash by identity, locations do not
    place = known.get(key)
    if place is None:
        place = known[key] = parse(str(location))
    return place


def parse(text: str) -> Place:
    """Reads a location's text."""
    name = _NAME.match(text)
    frames = [
        Frame(file, int(line), function) for function, file, line in _FRAME.findall(text, name.end(1) if name else 0)
    ]
    return Place(name[1] if name else "", innermost(frames))

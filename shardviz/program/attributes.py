"""Shardy's and MLIR's attributes as plain data: shardings, lists of axes, element types."""

from __future__ import annotations

import re
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from shardviz.notation import Axis, Spec
from shardviz.notation.scan import unescaped

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

"""The mesh that a lowered module's shardings are over: read, called by one name, written over another mesh's axes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from jax.extend.mlir import ir

from shardviz.errors import MeshError
from shardviz.notation import DeviceMesh
from shardviz.notation.scan import unescaped
from shardviz.notation.sdy_text import sdy_axis
from shardviz.program.entry import attributes_of
from shardviz.program.lower import MESH, set_mesh
from shardviz.program.module_walk import items, walk

_SIZE = re.compile(r'"((?:[^"\\]|\\.)*)"\s*=\s*(\d+)')
_IDS = re.compile(r"device_ids\s*=\s*\[([\d,\s]*)\]")
_MESHES = re.compile(r"@([\w.$-]+|\"(?:[^\"\\]|\\.)*\")")
GROUPS = "#stablehlo.replica_group_mesh_axes"


def _meshes(module: Any) -> dict[str, DeviceMesh]:
    """Symbol → mesh, of those that have axes."""
    found = {}
    for op in module.operation.regions[0].blocks[0].operations:
        if op.operation.name == "sdy.mesh":
            text = str(op.attributes["mesh"])
            axes = {unescaped(name): int(size) for name, size in _SIZE.findall(text)}
            ids = _IDS.search(text)
            order = tuple(int(i) for i in ids[1].split(",")) if ids and ids[1].strip() else ()
            if axes:
                symbol = ir.StringAttr(op.attributes["sym_name"]).value
                found[symbol] = DeviceMesh(tuple(axes), tuple(axes.values()), device_ids=order)
    return found


def mesh_in(module: Any) -> DeviceMesh | None:
    """The mesh that a module's shardings are over."""
    found = _meshes(module)
    return found.get(MESH) or next(iter(found.values()), None)


def with_one_mesh(module: Any) -> Any:
    """The module with its mesh called as `lower.MESH`; several names for one mesh become one."""
    found = _meshes(module)
    if not found or set(found) == {MESH}:
        return module
    kept = found.get(MESH) or next(iter(found.values()))
    same = [symbol for symbol, mesh in found.items() if mesh.shape == kept.shape and symbol != MESH]
    if not same:
        return module
    block = module.operation.regions[0].blocks[0]
    for op in list(block.operations):
        if op.operation.name == "sdy.mesh" and (symbol := ir.StringAttr(op.attributes["sym_name"]).value) in same:
            if MESH in found:
                op.operation.erase()
            else:
                op.attributes["sym_name"] = ir.StringAttr.get(MESH)
                found[MESH] = found[symbol]
    names = {f"@{symbol}" for symbol in same} | {f'@"{symbol}"' for symbol in same}
    _rewrite(module, lambda text: _MESHES.sub(lambda m: f"@{MESH}" if m[0] in names else m[0], text))
    return module


def _matching(own: DeviceMesh, mesh: DeviceMesh, name: str) -> dict[str, tuple[str, ...]]:
    """The module's axis → the axes of the person's mesh that take its place: the next ones whose sizes multiply to it.

    Raises:
        MeshError: if the sizes do not go together.
    """
    left = list(mesh.shape.items())
    found: dict[str, tuple[str, ...]] = {}
    for axis, size in own.shape.items():
        taken: list[str] = []
        product = 1
        while left and (product < size or (product == size and not taken)):
            taken.append(left[0][0])
            product *= left.pop(0)[1]
        if product != size or not taken:
            raise MeshError(
                f"{name}: its shardings are over the mesh {own}, whose axes cannot be written over the mesh {mesh}; "
                f"give a mesh with the same axis names, or one whose sizes, in order, multiply to "
                f"{'x'.join(map(str, own.sizes))}"
            )
        found[axis] = tuple(taken)
    if left and any(size > 1 for _, size in left):
        raise MeshError(f"{name}: it is for {own.size} devices, and the mesh {mesh} has {mesh.size}")
    return found


def write_over(module: Any, own: DeviceMesh, mesh: DeviceMesh, name: str) -> None:
    """Writes another mesh's axes into every sharding of a module, in its place.

    Args:
        module: the module; its context is entered.
        own: its mesh.
        mesh: the mesh to write them over.
        name: the function's name, for messages.

    Raises:
        MeshError: if the sizes of the two do not go together.
    """
    _rename(module, _matching(own, mesh, name))
    set_mesh(module.operation, module.operation.regions[0].blocks[0], mesh)


def _rename(module: Any, axes: Mapping[str, tuple[str, ...]]) -> None:

    def renamed(text: str) -> str:
        def axis(match: re.Match[str]) -> str:
            new = axes.get(unescaped(match[1]))
            if new is None:
                return match[0]
            if match[2]:
                if len(new) != 1:
                    raise MeshError(
                        f"a sharding inside uses a part of the axis {match[1]!r}, so it cannot become {len(new)} axes; "
                        "give a mesh with one axis in its place"
                    )
                return "".join(map(sdy_axis, new)) + match[2]
            return ", ".join(map(sdy_axis, new))

        if GROUPS in text:
            return _REFERENCE.sub(lambda m: ", ".join(_reference(a) for a in axes.get(unescaped(m[1]), (m[1],))), text)
        return _QUOTED.sub(axis, text)

    _rewrite(module, renamed)


_REFERENCE = re.compile(r'#stablehlo\.axis_ref<name = "((?:[^"\\]|\\.)*)">')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"(:\(\d+\)\d+)?')


def _reference(axis: str) -> str:
    return f"#stablehlo.axis_ref<name = {sdy_axis(axis)}>"


def _rewrite(module: Any, change: Callable[[str], str]) -> None:
    """Changes the text of every Shardy attribute in a module, the meshes themselves left alone."""
    for op in walk(module.operation):
        if op.name in ("sdy.mesh", "builtin.module"):
            continue
        if op.name == "func.func":
            for which in ("arg_attrs", "res_attrs"):
                if which in op.attributes:
                    entries = attributes_of(op, which, 0)
                    for entry in entries:
                        if "sdy.sharding" in entry:
                            entry["sdy.sharding"] = ir.Attribute.parse(change(str(entry["sdy.sharding"])))
                    op.attributes[which] = ir.ArrayAttr.get([ir.DictAttr.get(e) for e in entries])
            continue
        for key, attribute in items(op):
            text = str(attribute)
            if text.startswith("#sdy") or GROUPS in text:
                op.attributes[key] = ir.Attribute.parse(change(text))

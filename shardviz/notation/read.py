"""Which notation is this? Looks at what was given and hands it to the reader of its kind.

Objects of JAX are known by what they have, not by their class, so that nothing of JAX is imported for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from shardviz.errors import MeshError, SpecError
from shardviz.notation.hlo_text import parse_hlo, with_known_rank
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.mesh_text import of_jax
from shardviz.notation.named import build, onto
from shardviz.notation.pmap import ShardingSpec
from shardviz.notation.proto import decode, parts
from shardviz.notation.proto_text import is_message, message_of
from shardviz.notation.record import Sharding
from shardviz.notation.scan import Scanner, unescaped
from shardviz.notation.sdy_text import parse_sdy, parse_sdy_values
from shardviz.notation.short_text import parse_short
from shardviz.notation.spec import Axis, Spec, only_sums

_SPEC = re.compile(r"(P(?:artitionSpec)?\(.*\))(?:, memory_kind=[\w-]+)?\)", re.DOTALL)
_ATTRIBUTE = re.compile(r"\{?\s*(?:sdy\.|mhlo\.)?sharding\s*=\s*(?=[\"{#<\[])")
"""In front of a sharding where it is copied from a program: `sharding={...}`, `{sdy.sharding = #sdy.sharding<...>}`."""


def read(given: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """Reads a sharding; `sharding.sharding` says what is taken and what is raised."""
    if isinstance(given, Sharding):
        return given if mesh is None or mesh == given.mesh else _moved(given, mesh)
    if isinstance(given, str):
        return read_text(given, mesh, rank)
    if isinstance(given, ShardingSpec):
        return given.to_sharding(mesh)
    if isinstance(given, Spec):
        given = Spec(
            Spec.of(given.dims).dims, Spec.of((given.unreduced,)).axes
        )  # somebody may have built it of anything
    if given is None or isinstance(given, Spec | tuple | list) or _is_pspec(given):
        return from_entries(given, _needed(mesh, given), rank)
    return _from_object(given, mesh, rank)


def read_text(text: str, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """Reads text, whose first characters say what it is."""
    plain = text.strip()
    if found := _ATTRIBUTE.match(plain):
        plain = plain[found.end() :].removesuffix("}" if plain.startswith("{") else "").strip()
        if plain[:1] == plain[-1:] == '"':
            plain = unescaped(plain[1:-1])
    if plain.startswith("{"):
        return parse_hlo(plain, mesh, rank)
    if is_message(plain):
        return decode(message_of(plain), mesh, rank)
    if plain.startswith(("#sdy", "sdy.", "<")) or (plain.startswith("[") and "{" in plain):
        return parse_sdy(plain, mesh, rank)
    if plain.startswith("NamedSharding("):
        return _printed(plain, mesh, rank)
    return parse_short(plain, _needed(mesh, text), rank)


def _printed(text: str, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """What a `NamedSharding` prints. The mesh in it has no order of devices: a mesh that is given is taken instead."""
    it = Scanner(text, "sharding")
    it.need("NamedSharding(")
    it.need("mesh=")
    own = of_jax(it)
    it.need(",")
    it.need("spec=")
    found = _SPEC.fullmatch(it.text[it.at :])
    if found is None:
        it.fail("a PartitionSpec, then at most memory_kind")
    if mesh is not None and (mesh.names, mesh.sizes) != (own.names, own.sizes) and own.names:
        raise SpecError(f"sharding {text}: it is over the mesh {own}, not {mesh}; leave out the mesh, or give that one")
    if mesh is not None:  # its order of devices, with the types that were printed
        own = replace(mesh, types=own.types or mesh.types)
    return parse_short(found[1], own, rank)


def read_all(given: Any, mesh: DeviceMesh | None) -> tuple[Sharding, ...]:
    """Reads the shardings of a tuple; of anything else the one that it is."""
    text = given.strip() if isinstance(given, str) else ""
    if hasattr(given, "context"):
        text = str(given)
    if text.startswith("{"):
        it = Scanner(text, "HLO sharding")
        it.need("{")
        if not (it.sees("{") or it.sees("}")):
            return (read_text(text, mesh, None),)
        texts = it.listed(it.balanced, "}")
        it.end()
        return tuple(parse_hlo(element, mesh) for element in texts)
    if text.startswith(("#sdy", "sdy.")):
        found = parse_sdy_values(text, mesh)
        return (parse_sdy(text, mesh),) if found is None else found
    data = message_of(text) if is_message(text) else _bytes(given)
    if data is None:
        return (read(given, mesh, None),)
    elements = parts(data)
    return tuple(decode(element, mesh) for element in ([data] if elements is None else elements))


def _bytes(given: Any) -> bytes | None:
    """A serialized `OpSharding`, an `OpSharding` or an `HloSharding` as bytes; None for what is none of these."""
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    if hasattr(given, "tile_assignment_devices"):
        given = given.to_proto() if hasattr(given, "to_proto") else given
        return given.SerializeToString()
    return None


def _needed(mesh: DeviceMesh | None, given: Any) -> DeviceMesh:
    if mesh is None:
        text = str(given)
        text = text if len(text) < 200 else text[:200] + "..."
        raise MeshError(f"{text}: the sizes of its axes are a mesh's; give one, such as mesh='data=8,model=4'")
    return mesh


def _moved(cut: Sharding, mesh: DeviceMesh) -> Sharding:
    if (cut.mesh.names, cut.mesh.sizes) == (mesh.names, mesh.sizes):
        return replace(cut, mesh=mesh)
    if cut.spec is None:
        return onto(cut, (), mesh)
    more = {"manual": cut.manual, "replicated": cut.replicated, "reduced": cut.reduced}
    return Sharding.from_spec(cut.spec, mesh, cut.rank, open=cut.open, priorities=cut.priorities, **more)


def _is_pspec(given: Any) -> bool:
    return hasattr(given, "UNCONSTRAINED") and isinstance(given, Iterable) and not isinstance(given, type)


def from_entries(given: Any, mesh: DeviceMesh, rank: int | None) -> Sharding:
    """The record of a PartitionSpec, a tuple or a `Spec`; axes that the mesh has as Manual are manual."""
    if isinstance(given, Spec):
        spec, opened = given, [False] * len(given.dims)
    else:
        entries = list(getattr(given, "partitions", given) or ())
        opened = [not isinstance(entry, str) and repr(entry) == "UNCONSTRAINED" for entry in entries]
        if getattr(given, "unreduced", None):
            only_sums(str(getattr(given, "unreduced_kind", None)), str(given))
        closed = tuple(None if o else entry for entry, o in zip(entries, opened, strict=True))
        spec = Spec(Spec.of(closed).dims, _names(given, "unreduced"))
    reduced = _names(given, "reduced")
    return Sharding.from_spec(spec, mesh, rank, manual=mesh.manual, open=opened, reduced=reduced)


def _names(given: Any, field: str) -> tuple[Axis, ...]:
    return tuple(sorted(getattr(given, field, None) or (), key=str))


def _from_object(given: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """A JAX object, by what it has; the order of its devices is its own mesh's, where it says one."""
    if (data := _bytes(given)) is not None:
        return decode(data, mesh, rank)
    if hasattr(given, "dim_shardings") and hasattr(given, "mesh_shape"):  # SdyArray
        return from_sdy_array(given, mesh, rank)
    if hasattr(given, "context") and str(given).startswith("#sdy.sharding"):  # an attribute of MLIR
        return parse_sdy(str(given), mesh, rank)
    if (hasattr(given, "spec") and hasattr(given, "mesh")) or hasattr(given, "device_set"):
        return _from_jax_sharding(given, mesh, rank)
    inner = getattr(given, "sharding", None)
    shape = getattr(given, "shape", None)
    if inner is not None and isinstance(shape, tuple) and not isinstance(given, type):
        return read(inner, mesh, len(shape) if rank is None else rank).with_rank(len(shape))
    raise SpecError(
        f"sharding: expected a PartitionSpec, text such as '[data, ·]' or '{{devices=[2,4]<=[8]}}', an OpSharding or a "
        f"jax Sharding, not {type(given).__name__}"
    )


def from_sdy_array(given: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """JAX's own record of a Shardy sharding, which `NamedSharding` makes on its way to the compiler."""
    axes = dict(given.mesh_shape or ())
    own = DeviceMesh.of(axes)
    devices = tuple(map(int, given.logical_device_ids or ()))
    dims = [(tuple(dim.axes), bool(dim.is_open), None) for dim in given.dim_shardings]
    lists = {"replicated": _names(given, "replicated_axes"), "unreduced": _names(given, "unreduced_axes")}
    if lists["unreduced"]:
        only_sums(str(getattr(given, "reduction_op", None)), str(given))
    if len(devices) == 1 and not axes:  # one device holds all
        return Sharding.on_one(devices[0], _needed(mesh, given), len(dims) or rank)
    return with_known_rank(build(own, devices, dims, lists, mesh), rank)


def _from_jax_sharding(given: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    if hasattr(given, "spec") and hasattr(given, "mesh"):  # NamedSharding
        own = DeviceMesh.of(given.mesh)
        if mesh is not None and not own.names:
            return from_entries(given.spec, mesh, rank)
        found = from_entries(given.spec, own, rank)
        alike = mesh is None or (mesh.names, mesh.sizes) == (own.names, own.sizes)
        return found if mesh is None or (alike and own.device_ids) else _moved(found, mesh)
    from shardviz import _jax

    ids = _jax.device_ids(given)
    if len(ids) == 1:  # SingleDeviceSharding
        if mesh is None:
            return Sharding.from_spec(Spec(), DeviceMesh((), (), (), ids), rank)
        where = mesh.ids().tolist()
        if ids[0] not in where:
            raise SpecError(f"{given}: the mesh {mesh} has no device {ids[0]}")
        return Sharding.on_one(where.index(ids[0]), mesh, rank)
    text = _jax.hlo_sharding_of(given, rank)
    if text is None:
        raise SpecError(f"{type(given).__name__}: it has neither a spec nor an HLO sharding")
    own = DeviceMesh(("devices",), (len(ids),), (), ids)
    found = parse_hlo(text, own, rank)
    if mesh is None:
        return found
    order = {device: place for place, device in enumerate(mesh.ids().tolist())}
    if set(ids) != set(order):
        raise SpecError(f"{given}: its devices are not those of the mesh {mesh}")
    return onto(found, tuple(order[device] for device in ids), mesh)

"""Which notation is this? Looks at what was given and hands it to the reader of its kind.

Objects of JAX are known by what they have, not by their class, so that nothing of JAX is imported for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from shardviz.errors import MeshError, SpecError
from shardviz.notation.hlo_text import parse_hlo
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.named import onto
from shardviz.notation.pmap import ShardingSpec
from shardviz.notation.proto import decode
from shardviz.notation.record import Sharding
from shardviz.notation.sdy_text import parse_sdy
from shardviz.notation.short_text import parse_short
from shardviz.notation.spec import Axis, Spec


def read(given: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """Reads a sharding; `sharding.sharding` says what is taken and what is raised."""
    if isinstance(given, Sharding):
        return given if mesh is None or mesh == given.mesh else _moved(given, mesh)
    if isinstance(given, str):
        return read_text(given, mesh, rank)
    if isinstance(given, bytes | bytearray | memoryview):
        return decode(bytes(given), mesh, rank)
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
    if plain.startswith("{"):
        return parse_hlo(plain, mesh, rank)
    if plain.startswith(("#sdy", "sdy.", "<")) or (plain.startswith("[") and "{" in plain):
        return parse_sdy(plain, mesh, rank)
    return parse_short(plain, _needed(mesh, text), rank)


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
        kind = str(getattr(given, "unreduced_kind", None))
        if getattr(given, "unreduced", None) and kind.rpartition(".")[2].lower() not in ("none", "sum"):
            raise SpecError(f"{given}: unreduced axes of kind {kind}; only sums are known here")
        closed = tuple(None if o else entry for entry, o in zip(entries, opened, strict=True))
        spec = Spec(Spec.of(closed).dims, _names(given, "unreduced"))
    manual = tuple(
        name for name, kind in zip(mesh.names, mesh.types, strict=True) if kind == "Manual" and mesh.shape[name] > 1
    )
    reduced = _names(given, "reduced")
    return Sharding.from_spec(spec, mesh, rank, manual=manual, open=opened, reduced=reduced)


def _names(given: Any, field: str) -> tuple[Axis, ...]:
    return tuple(sorted(getattr(given, field, None) or (), key=str))


def _from_object(given: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """A JAX object, by what it has; the order of its devices is its own mesh's, where it says one."""
    if hasattr(given, "tile_assignment_dimensions") and hasattr(given, "SerializeToString"):  # OpSharding
        return decode(given.SerializeToString(), mesh, rank)
    if hasattr(given, "tile_assignment_devices") and hasattr(given, "to_proto"):  # HloSharding
        return parse_hlo(str(given), mesh, rank)
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

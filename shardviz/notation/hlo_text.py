"""HLO's text of a sharding, in its three generations, as a record; read strictly.

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> str(parse_hlo("{devices=[1,1,4,2]<=[2,4]T(1,0) last_tile_dims={unreduced, replicated}}", mesh))
'[·, ·] sum over model'
>>> str(parse_hlo("{maximal device=3}", mesh)), str(parse_hlo("{manual}", mesh, 2))
('all on device 3', '[·, ·] manual data model')

The formats are those of `HloSharding::ToString`, `TileAssignment::ToString` and `NamedSharding::ToString` in XLA.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from shardviz.errors import MeshError, SpecError
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.named import MOST_DEVICES, axes, build, dimension, integers, iota, mesh_axes, onto
from shardviz.notation.record import Sharding
from shardviz.notation.scan import Scanner
from shardviz.notation.spec import Spec, only_sums
from shardviz.notation.tiling import Tiling

_REDUCTION = re.compile(r'op_type="sdy::reduction_op"\s+op_name="(\w*)"')


_FIRST = "replicated, manual, unreduced, unknown, maximal device=..., devices=[...] or mesh[...]"


def parse_hlo(text: str, mesh: DeviceMesh | None, rank: int | None = None) -> Sharding:
    """Reads the HLO sharding of one array.

    Args:
        text: V1, V2 or V3, with its braces.
        mesh: the mesh to say it in; device i is its i-th place. None takes the text's own (V3), or one axis `devices`.
        rank: the array's rank where it is known; `{replicated}` and its like do not say it.

    Raises:
        ParseError: if it is no HLO sharding.
        SpecError: if it is a tuple's, or over another number of devices.
        MeshError: if there is no mesh and the text says none.
    """
    it = Scanner(text, "HLO sharding")
    it.need("{")
    if it.sees("{") or it.sees("}"):
        whole = Scanner(text, "HLO sharding")
        whole.balanced()
        whole.end()
        raise SpecError(
            f"HLO sharding {text}: this is a tuple's sharding; pick one of its elements, for one array at a time, or "
            "read them all with notation.shardings"
        )
    if it.sees("mesh"):
        found = _named(it, mesh, rank)
    elif it.take("devices="):
        found = _tiled(it, mesh)
    else:
        found = _word(it, it.word(_FIRST), mesh, rank)
    while not it.take("}"):
        if it.take("metadata="):
            if kind := _REDUCTION.search(it.balanced()):  # newer XLA says there what partial results are
                only_sums(kind[1], f"HLO sharding {text}")
        elif it.take("shard_as") or it.take("shard_like"):
            it.integer()
        elif not (it.take(",") and it.sees("metadata=")):
            it.fail("'}'")
    it.end()
    return found


def short(word: str, mesh: DeviceMesh | None, rank: int | None, text: str) -> Sharding:
    """The record of `replicated`, `manual`, `unreduced` or `unknown`."""
    mesh = _mesh(mesh, text)
    if word == "unknown":
        return Sharding.not_known(mesh, rank)
    every = tuple(n for n, s in zip(mesh.names, mesh.sizes, strict=True) if s > 1)
    spec = Spec(((),) * (rank or 0), every if word == "unreduced" else ())
    return Sharding.from_spec(spec, mesh, rank, manual=every if word == "manual" else ())


def _mesh(mesh: DeviceMesh | None, text: str) -> DeviceMesh:
    if mesh is None:
        raise MeshError(f"{text}: it names no mesh; give one, such as mesh='data=8,model=4'")
    return mesh


def _word(it: Scanner, word: str, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    if word == "maximal":
        it.need("device=")
        return Sharding.on_one(it.integer(), _mesh(mesh, it.text), rank)
    if word == "single_device":  # what newer XLA writes for it
        it.need("[")
        it.need("device_id=")
        device = it.integer()
        it.need("]")
        return Sharding.on_one(device, _mesh(mesh, it.text), rank)
    if word not in ("replicated", "manual", "unreduced", "unknown"):
        it.refuse(_FIRST)
    return short(word, mesh, rank, it.text)


def over(mesh: DeviceMesh | None, devices: int) -> DeviceMesh:
    """The mesh, or one of a single axis `devices` where there is none."""
    return DeviceMesh(("devices",), (devices,)) if mesh is None else mesh


def _tiled(it: Scanner, mesh: DeviceMesh | None) -> Sharding:
    start = it.at
    dims = integers(it)
    if it.take("<="):
        devices = iota(it)
    else:
        listed = [it.integer()]
        while it.take(","):
            listed.append(it.integer())
        devices = tuple(listed)
    kinds: tuple[str, ...] = ()
    if it.take("last_tile_dim_replicate"):
        kinds = ("replicated",)
    elif it.take("last_tile_dims={"):
        kinds = tuple(it.listed(it.word, "}"))
    if math.prod(dims) > MOST_DEVICES or len(dims) > 32:
        it.refuse(f"at most 32 dimensions and {MOST_DEVICES} tiles", start)
    return Sharding.from_tiling(Tiling(dims, kinds, devices), over(mesh, len(devices)))


def _named(it: Scanner, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    it.need("mesh")
    names, sizes = mesh_axes(it)
    devices: tuple[int, ...] = ()
    theirs = DeviceMesh(names, sizes)
    if it.sees(",") and "device_ids" in it.text[it.at : it.at + 16]:
        it.need(",")
        it.need("device_ids=")
        it.need("(")
        if it.sees("["):
            devices = iota(it)
            it.need(")")
        else:
            devices = tuple(it.listed(it.integer, ")"))
        if len(devices) == 1 and not names:  # one device holds all
            return Sharding.on_one(devices[0], _mesh(mesh, it.text), rank)
    it.need(",")
    if not it.sees("["):
        word = it.word()
        if word == "maximal":
            return _word(it, word, mesh or theirs, rank)
        if word not in ("replicated", "manual", "unreduced", "unknown"):
            it.refuse("dimensions such as [{'a'}, {}], or replicated, manual, unreduced, unknown")
        if word == "unreduced" and it.take("="):
            only_sums(it.word(), f"HLO sharding {it.text}")
        if word in ("replicated", "unknown") or not names or mesh is None or mesh.size != theirs.size:
            if mesh is not None and names and mesh.size != theirs.size:
                raise SpecError(
                    f"HLO sharding {it.text}: it is over {theirs.size} devices, and the mesh {mesh} has {mesh.size}"
                )
            return short(word, mesh or theirs, rank, it.text)
        return onto(short(word, theirs, rank, it.text), devices, mesh)
    it.need("[")
    dims = it.listed(lambda: dimension(it, priorities=False), "]")
    lists = {}
    while it.take(","):
        if it.sees("metadata="):
            break
        key = it.word()
        if key not in ("replicated", "unreduced", "manual") or key in lists:
            it.refuse("replicated={...}, unreduced={...} or manual={...}, each once")
        it.need("=")
        if key == "unreduced" and not it.sees("{"):
            only_sums(it.word(), f"HLO sharding {it.text}")
        lists[key] = axes(it)
    return with_known_rank(build(theirs, devices, dims, lists, mesh), rank)


def with_known_rank(found: Sharding, rank: int | None) -> Sharding:
    """A sharding with no dimensions fits every rank: it is said to, where a rank is known."""
    return replace(found, rank=None).with_rank(rank) if rank and found.rank == 0 else found

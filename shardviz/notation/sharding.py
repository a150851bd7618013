"""Any sharding, in whatever notation, as one record: the public `sv.sharding`.

>>> mesh = "data=2,model=4"
>>> for written in (("data", None), "P('data', None)", "[data, ·]", "A[I_data, J]", "{devices=[2,1,4]<=[8] \
last_tile_dim_replicate}", "{mesh['data'=2,'model'=4], [{'data'}, {}]}", '#sdy.sharding<@mesh, [{"data"}, {}]>'):
...     print(sharding(written, mesh))
[data, ·]
[data, ·]
[data, ·]
[data, ·]
[data, ·]
[data, ·]
[data, ·]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardviz.errors import SpecError
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.record import NOTATIONS, Sharding

__all__ = ["NOTATIONS", "Sharding", "sharding", "shardings", "together"]


def sharding(anything: Any, mesh: Any = None, rank: int | None = None) -> Sharding:
    """Reads a sharding, whatever it is written in.

    Args:
        anything: a PartitionSpec or a tuple such as `("data", None)`; text of a PartitionSpec, of HLO (V1, V2, V3) or
            of Shardy, the short `[data, ·]`, the scaling book's `A[I_data, J]`; an `OpSharding`, its serialized bytes,
            what it prints, or an `HloSharding`; Shardy's attributes, and the `SdyArray` that JAX makes them of; any
            `jax.sharding.Sharding`, and whatever has one (`jax.Array`); a `notation.pmap.ShardingSpec`; a `Sharding`
            record.
        mesh: a mesh in any form that `DeviceMesh.of` reads. May be left out where the sharding says it itself; a record
            or a `NamedSharding` is then said over this mesh by the names of its axes.
        rank: the array's number of dimensions; dimensions that are not named are not cut.

    Returns:
        The record.

    Raises:
        ParseError: for text or bytes that are no sharding.
        SpecError: for a sharding that does not fit the mesh or the rank.
        MeshError: if there is no mesh, or `mesh` is none.
    """
    from shardviz.notation import read

    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 0):
        raise SpecError(f"sharding: rank must be a whole number of dimensions, 0 or more, not {rank!r}")
    found = read.read(anything, None if mesh is None else DeviceMesh.of(mesh), rank)
    return found if rank is None else found.with_rank(rank)


def shardings(anything: Any, mesh: Any = None) -> tuple[Sharding, ...]:
    """Reads the shardings of a tuple of arrays, as HLO and Shardy write them for values with several parts.

    Args:
        anything: a tuple's HLO sharding (`{{replicated}, {devices=[8]<=[8]}}`), `OpSharding` (an object, its bytes or
            what it prints) or `HloSharding`; a `#sdy.sharding_per_value<[...]>`; or one array's, in any form that
            `sharding` reads.
        mesh: as for `sharding`.

    Returns:
        A record for each array.

    Raises:
        ShardvizError: as `sharding` does.

    >>> [str(cut) for cut in shardings("{{devices=[2,4]<=[8]}, {devices=[8]<=[8]}}", "data=2,model=4")]
    ['[data, model]', '[data model]']
    """
    from shardviz.notation import read

    return read.read_all(anything, None if mesh is None else DeviceMesh.of(mesh))


def together(cuts: Sequence[Sharding], notation: str) -> Any:
    """The sharding of a tuple of arrays.

    Args:
        cuts: a record for each array.
        notation: `hlo-v1`, `hlo-v2`, `hlo-v3` or `sdy` (text), or `proto` (an `OpSharding` of type TUPLE).

    Raises:
        SpecError: where the notation cannot express one of them, or has no word for several.

    >>> together(shardings("{{devices=[2,4]<=[8]}, {replicated}}", "data=2,model=4"), "hlo-v2")
    '{{devices=[2,4]<=[8]}, {replicated}}'
    """
    from shardviz.notation import write

    return write.together(cuts, notation)

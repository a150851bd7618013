"""One sharding in every notation, side by side, with what each piece means and, where one cannot say it, why.

>>> shown = rosetta("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "data=2,model=4")
>>> for line in shown.text(72).splitlines()[:4]:
...     print(line)
[data, ·] on the mesh data=2,model=4, in every notation
<BLANKLINE>
notation             the sharding in it
PartitionSpec        P('data', None)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shardviz import notation
from shardviz.errors import SpecError
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation import Row as Said
from shardviz.notation.read import Sharding, sharding
from shardviz.records import Value
from shardviz.view.document import (
    Column,
    Document,
    Inline,
    Piece,
    Row,
    Table,
    code,
    document,
    mesh_axes,
    row,
    shorten,
    words,
)
from shardviz.visible import Visible

NAMES = {
    "pspec": "PartitionSpec",
    "short": "short",
    "book": "the scaling book's",
    "hlo-v1": "HLO V1, device list",
    "hlo-v2": "HLO V2, iota",
    "hlo-v3": "HLO V3, named",
    "proto": "OpSharding",
    "sdy": "Shardy",
    "pmap": "pmap's ShardingSpec",
}
"""What people call the notations."""

MET = {
    "pspec": "in JAX programs",
    "short": "in shardviz",
    "book": "in the scaling book",
    "hlo-v1": "in XLA's dumps, any device order",
    "hlo-v2": "in XLA's dumps",
    "hlo-v3": "in the newest XLA's dumps",
    "proto": "in serialised programs",
    "sdy": "in lowered StableHLO",
    "pmap": "in old pmap programs",
}
"""Where people meet them."""

MOST_CHARACTERS = 320
"""Characters of a sharding's text; longer ones (device lists) end in `…`."""

_MOST_PIECE = 60


@dataclass(frozen=True, eq=False, repr=False)
class ShownRosetta(Visible):
    """A sharding in every notation, as a table that shows itself.

    Attributes:
        sharding: the record.
    """

    sharding: Sharding

    @cached_property
    def rows(self) -> tuple[Said, ...]:
        """A `notation.Row` for each notation."""
        return tuple(notation.rosetta(self.sharding))

    def text(self, width: int | None = 80) -> str:
        """The table in plain text, at most `width` columns wide."""
        return super().text(width)


def rosetta(anything: Any, mesh: Any = None, rank: int | None = None) -> ShownRosetta:
    """A sharding in every notation, with what each letter means and, where a notation cannot say it, why.

    Args:
        anything: a sharding in any notation that `shardviz.sharding` reads, or whatever has one: a `jax.Array`, a
            `jax.ShapeDtypeStruct`, a value of a report (whose mesh is `report.mesh`).
        mesh: a mesh in any form that `DeviceMesh.of` reads; None where the sharding brings its own.
        rank: the array's number of dimensions, where the sharding does not say it.

    Raises:
        ShardvizError: as `shardviz.sharding` does.
    """
    return ShownRosetta(sharding_of(anything, mesh) if isinstance(anything, Value) else sharding(anything, mesh, rank))


def sharding_of(value: Value, mesh: Any) -> Sharding:
    """How a value of a report is cut.

    Args:
        value: the value.
        mesh: the report's mesh.

    Raises:
        MeshError: if `mesh` is none.
        SpecError: where the report does not say how it is cut.
    """
    if value.manual:
        mesh = DeviceMesh.of(mesh)
        return Sharding.from_spec(value.spec or Spec(), mesh, len(value.shape), manual=value.manual)
    said = value.spec if value.spec is not None else value.sharding.get("hlo") or value.sharding.get("sdy")
    if said is None:
        raise SpecError(f"{value.name}: the report does not say how it is cut", argument=value.name)
    return sharding(said, mesh, len(value.shape))


@document.register
def told(shown: ShownRosetta) -> Document:
    """The sharding, and a row for each notation with its pieces below it."""
    cut, mesh = shown.sharding, shown.sharding.mesh
    plain = cut.spec is None or cut.manual or any(cut.open) or cut.reduced
    said = code(str(cut)) if plain else Piece(text=str(cut), kind="spec", value=cut.spec)
    where = "the mesh" if mesh.names else "one device" if mesh.size == 1 else "a mesh with no axes"
    over = (mesh_axes(mesh),) if mesh.names else ()
    columns = (Column("notation"), Column("the sharding in it", wrap=True))
    table = Table(columns=columns, rows=tuple(map(_row, shown.rows)), name="rosetta")
    title = (said, words(f"on {where}"), *over, words(", in every notation"))
    return Document(title=title, blocks=(table,), mesh=mesh)


def _row(said: Said) -> Row:
    text: Inline = (words("not possible:", strong=True, quiet=True), words(said.why, quiet=True))
    if said.text is not None:
        text = code(shorten(said.text, MOST_CHARACTERS))
    letters = tuple(
        row(code(shorten(letter.piece, _MOST_PIECE), strong=True), words(letter.meaning)) for letter in said.letters
    )
    pieces = (Table(columns=(Column(""), Column("", wrap=True)), rows=letters),) if letters else ()
    return row(words(NAMES.get(said.notation, said.notation), strong=True), text, detail=pieces)

"""One sharding in every notation, and what each letter of it means.

>>> from shardviz.notation.read import sharding
>>> cut = sharding("P('data', None)", "data=2,model=4")
>>> for row in rosetta(cut):
...     print(f"{row.notation:8}{row.text or row.why}")
pspec   P('data', None)
short   [data, ·]
book    A[I_data, J]
hlo-v1  {devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}
hlo-v2  {devices=[2,1,4]<=[8] last_tile_dim_replicate}
hlo-v3  {mesh['data'=2,'model'=4], [{'data'}, {}]}
proto   type: OTHER tile_assignment_dimensions: [2, 1, 4] replicate_on_last_tile_dim: true iota_reshape_dims: [8] \
iota_transpose_perm: [0]
sdy     #sdy.sharding<@mesh, [{"data"}, {}]>
pmap    ShardingSpec((Chunked(2), NoSharding()), (ShardedAxis(axis=0), Replicated(replicas=4)))
>>> for letter in rosetta(sharding("[model, ·]", cut.mesh))[4].letters:
...     print(letter.piece, "=", letter.meaning)
devices=[4,1,2] = tiles along each dimension: 4, 1; the number behind them, 2, counts devices that share a tile
<=[2,4] = the devices 0 to 7, row by row in a table of 2 x 4
T(1,0) = and read with the table's dimensions in the order 1, 0: 0, 4, 1, 5, 2, 6, ...
last_tile_dim_replicate = each tile is on 2 devices, as copies
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from shardviz.errors import SpecError
from shardviz.notation import hlo, pmap, proto, pspec, sdy, short
from shardviz.notation.letters import Letter, Piece, letters_of, text_of
from shardviz.notation.record import NOTATIONS, WRITERS, Sharding


@dataclass(frozen=True)
class Notation:
    """What is written in a notation.

    Attributes:
        write: a record as pieces of text, with their meanings.
        make: a record as the object that programs use; the text, where there is no such object.
        knows_unknown: whether it has a word for a sharding that the compiler did not say.
    """

    write: Callable[[Sharding], Iterable[Piece]]
    make: Callable[[Sharding], Any] | None = None
    knows_unknown: bool = False


_TABLE = {
    "pspec": Notation(pspec.write, pspec.make),
    "short": Notation(short.write),
    "book": Notation(short.write_book),
    "hlo-v1": Notation(hlo.write_v1, knows_unknown=True),
    "hlo-v2": Notation(hlo.write_v2, knows_unknown=True),
    "hlo-v3": Notation(hlo.write_v3, knows_unknown=True),
    "proto": Notation(proto.write, proto.make, knows_unknown=True),
    "sdy": Notation(sdy.write),
    "pmap": Notation(pmap.write, pmap.from_sharding),
}


@dataclass(frozen=True)
class Row:
    """A sharding in one notation.

    Attributes:
        notation: one of `NOTATIONS`.
        text: what it is there; None where the notation cannot express it.
        why: where it cannot, why; otherwise empty.
        letters: what the pieces of the text mean, in the order in which they stand in it.
    """

    notation: str
    text: str | None
    why: str = ""
    letters: tuple[Letter, ...] = ()


def rosetta(cut: Sharding) -> tuple[Row, ...]:
    """A sharding in every notation.

    Args:
        cut: the record, from `sharding`.

    Returns:
        A row for each of `NOTATIONS`, in that order.
    """
    rows = []
    for notation in NOTATIONS:
        try:
            pieces = _pieces(notation, cut)
        except SpecError as error:
            rows.append(Row(notation, None, str(error)))
        else:
            rows.append(Row(notation, text_of(pieces), "", letters_of(pieces)))
    return tuple(rows)


def together(cuts: Sequence[Sharding], notation: str) -> Any:
    """The sharding of a tuple of arrays.

    Args:
        cuts: a record for each array.
        notation: `hlo-v1`, `hlo-v2`, `hlo-v3` or `sdy` (text), or `proto` (an `OpSharding` of type TUPLE).

    Raises:
        SpecError: where the notation cannot express one of them, or has no word for several.

    >>> from shardviz.notation.read import shardings
    >>> together(shardings("{{devices=[2,4]<=[8]}, {replicated}}", "data=2,model=4"), "hlo-v2")
    '{{devices=[2,4]<=[8]}, {replicated}}'
    """
    if notation == "proto":
        elements = [proto.message_of(cut) for cut in cuts]
        return proto.make_object({"type": [proto.TYPES.index("tuple")], "tuple_shardings": elements})
    if notation in ("hlo-v1", "hlo-v2", "hlo-v3"):
        return f"{{{', '.join(cut.to(notation) for cut in cuts)}}}"
    if notation == "sdy":
        inside = ", ".join(cut.to(notation).removeprefix("#sdy.sharding") for cut in cuts)
        return f"#sdy.sharding_per_value<[{inside}]>"
    raise SpecError(f"notation {notation!r}: only hlo-v1, hlo-v2, hlo-v3, proto and sdy say several shardings in one")


def _pieces(notation: str, cut: Sharding) -> list[Piece]:
    _check_known(notation, cut)
    return list(_TABLE[notation].write(cut))


def _made(notation: str, cut: Sharding) -> Any:
    make = _TABLE[notation].make
    if make is None:
        return text_of(_pieces(notation, cut))
    _check_known(notation, cut)
    return make(cut)


def _check_known(notation: str, cut: Sharding) -> None:
    if cut.unknown and not _TABLE[notation].knows_unknown:
        raise SpecError(f"unknown sharding: the compiler did not say it, and {notation} has no word for that")


WRITERS.update({notation: partial(_made, notation) for notation in NOTATIONS})

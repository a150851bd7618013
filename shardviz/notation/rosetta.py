"""One sharding in every notation, and what each letter of it means.

>>> from shardviz.notation.sharding import sharding
>>> for row in rosetta(sharding("P('data', None)", "data=2,model=4")):
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
pmap    ShardingSpec((Chunked(chunks=(2,)), NoSharding()), (ShardedAxis(axis=0), Replicated(replicas=4)))
"""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.errors import SpecError
from shardviz.notation.letters import Letter, letters
from shardviz.notation.proto_text import text_of
from shardviz.notation.record import NOTATIONS, Sharding
from shardviz.notation.write import proto_bytes, pspec_text


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
            text = _text(cut, notation)
        except SpecError as error:
            rows.append(Row(notation, None, str(error)))
        else:
            rows.append(Row(notation, text, "", letters(cut, notation, text)))
    return tuple(rows)


def _text(cut: Sharding, notation: str) -> str:
    if notation == "pspec":
        if cut.unknown:
            raise SpecError("unknown sharding: the compiler did not say it, and pspec has no word for that")
        return pspec_text(cut)
    if notation == "proto":
        return text_of(proto_bytes(cut))
    return str(cut.to(notation))

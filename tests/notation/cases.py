"""Random meshes and shardings, and a definition of what they mean that shares no code with the package."""

from __future__ import annotations

import itertools
import math

import jax
from hypothesis import strategies as st

from shardviz.notation import DeviceMesh, Sharding, Spec


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


@st.composite
def meshes(draw, most: int = 4, permuted: bool = False):
    sizes = tuple(draw(st.lists(st.sampled_from([1, 2, 2, 3, 4, 4, 6, 8]), min_size=1, max_size=most)))
    names = tuple(draw(st.permutations(["data", "model", "x", "y_1"])))[: len(sizes)]
    ids = tuple(draw(st.permutations(range(math.prod(sizes))))) if permuted and draw(st.booleans()) else ()
    return DeviceMesh(names, sizes, (), ids)


SUMS_ONLY = not hasattr(jax.sharding, "UnreducedKind")
"""Whether this JAX, with its Shardy and XLA, has partial sums and no maxima and minima."""


@st.composite
def shardings(
    draw, *, parts=False, unreduced=False, manual=False, open=False, priorities=False, replicated=False, sums_only=False
):
    """Each axis, or each part of one, goes to a dimension, to a list or nowhere."""
    mesh = draw(meshes())
    rank = draw(st.integers(0, 4))
    pieces = []
    for name, size in mesh.shape.items():
        before = draw(st.sampled_from(divisors(size))) if parts and draw(st.booleans()) else 1
        for start, length in ((1, before), (before, size // before)):
            if length == size:
                pieces.append(name)
                break
            if length > 1:
                pieces.append((name, start, length))
    dims: list[list] = [[] for _ in range(rank)]
    lists: dict[str, list] = {"unreduced": [], "manual": [], "replicated": []}
    kinds = [k for k, on in (("unreduced", unreduced), ("manual", manual), ("replicated", replicated)) if on]
    for piece in draw(st.permutations(pieces)):
        where = draw(st.sampled_from(["nowhere", *(["dimension"] * 2 if rank else []), *kinds]))
        if where == "dimension":
            dims[draw(st.integers(0, rank - 1))].append(piece)
        elif where in lists and (not isinstance(piece, str) or mesh.shape[piece] > 1):
            lists[where].append(piece)
    flags = [draw(st.booleans()) for _ in range(rank)] if open else [False] * rank
    marks = [  # Shardy has none where there is nothing to propagate
        draw(st.sampled_from([None, 0, 1, 3])) if priorities and (dim or flag) else None
        for dim, flag in zip(dims, flags, strict=True)
    ]
    kind = draw(st.sampled_from(["sum", "sum", "max", "min"])) if unreduced and not sums_only else "sum"
    spec = Spec(tuple(map(tuple, dims)), tuple(lists["unreduced"]), unreduced_kind=kind)
    return Sharding.from_spec(
        spec, mesh, rank, manual=lists["manual"], replicated=lists["replicated"], open=flags, priorities=marks
    )


def tile_table(spec: Spec, sizes: dict[str, int]) -> list[list[int]]:
    """By the definition: a dimension's tile is the number whose digits are the places on its axes, major first."""
    table = []
    for at in itertools.product(*(range(size) for size in sizes.values())):
        where = dict(zip(sizes, at, strict=True))
        row = []
        for dim in spec.dims:
            tile = 0
            for axis in dim:
                name, before, size = (axis, 1, sizes[axis]) if isinstance(axis, str) else axis
                tile = tile * size + where[name] // (sizes[name] // before // size) % size
            row.append(tile)
        table.append(row)
    return table


# What each text says on the mesh a=2,b=4, place i being a = i // 4, b = i % 4.
TABLE = [  # text, rank, what it says
    ("P('a', None)", None, "[a, ·]"),
    ("PartitionSpec(('a', 'b'), None)", None, "[a b, ·]"),
    ("P(('b', 'a'),)", None, "[b a]"),
    ("jax.P( 'a',None )", None, "[a, ·]"),
    ("jax.sharding.PartitionSpec(jax.sharding.PartitionSpec.UNCONSTRAINED, (), ['b'])", None, "[?, ·, b]"),
    (
        "NamedSharding(mesh=Mesh('a': 2, 'b': 4, axis_types=(Auto, Auto)), spec=P('a', ('b',)), memory_kind=device)",
        None,
        "[a, b]",
    ),
    (
        "NamedSharding(mesh=AbstractMesh('a': 2, 'b': 4, axis_types=(Explicit, Manual)), spec=P('a', UNCONSTRAINED))",
        None,
        "[a, ?] manual b",
    ),
    ("NamedSharding(mesh=AbstractMesh((), axis_types=()), spec=P())", 1, "[·]"),
    ("sharding={devices=[2,4]<=[8]}", None, "[a, b]"),
    ('{sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}', None, "[a, ·]"),
    ('{mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"}', None, "[a, ·]"),
    ("{ devices=[2, 4] <= [8] }", None, "[a, b]"),
    ("{devices=[1,8]0,1,2,3,4,5,6,7}", None, "[·, a b]"),
    ("{devices=[2,4]<=[4,2]T(1,0)}", None, "[b:(2)2, a b:(1)2]"),
    ("{devices=[2,4]<=[2,2,2]T(2,1,0)}", None, "[b:(2)2, b:(1)2 a]"),
    ("{devices=[1,2,2,2]<=[8] last_tile_dims={manual, manual, replicated}}", None, "[·] manual a b:(1)2"),
    ("{devices=[2,2,2,1]<=[8] last_tile_dims={manual, replicated, unreduced}}", None, "[a] manual b:(1)2"),
    ('{devices=[2,4]<=[8] metadata={{op_name="x"},{op_name="y}"}}}', None, "[a, b]"),
    ("{replicated shard_as 3}", 1, "[·]"),
    ("{mesh['b'=4,'a'=2], [{'a'}, {'b'}]}", None, "[b:(2)2, a b:(1)2]"),
    ("{mesh['a'=2,'b'=1,'c'=4], [{'a','b','c'}]}", None, "[a b]"),
    ("{mesh['a'=2,'b'=4], [{'b':(2)2, 'b':(1)2}]}", None, "[b:(2)2 b:(1)2]"),
    ("{mesh['a'=2,'b'=4], [], unreduced={'a'}}", None, "[] sum over a"),
    ('#sdy.sharding< @mesh , [ { "a" , ? } p0 , { } ] >', None, "[a ?, ·]"),
    ('#sdy.sharding<@"mesh 1", [{"b":(1)2, "b":(2)2}]>', None, "[b]"),
    ("#sdy.sharding<@maximal_mesh_3, []>", 2, "all on device 3"),
    ("#sdy.sharding<mesh<[]>, [{}, {}]>", None, "[·, ·]"),
    ("P()", None, "[]"),
    ("P()", 2, "[·, ·]"),
    ("P('a', UNCONSTRAINED, unreduced={'b'})", None, "[a, ?] sum over b"),
    ("P(P.UNCONSTRAINED, reduced={'b'})", None, "[?] reduced b"),
    ("P(None, unreduced={'b'}, unreduced_kind=sum)", None, "[·] sum over b"),
    ("('a', None)", None, "[a, ·]"),
    ("('a',)", None, "[a]"),
    ("P((('b', 2, 2),), 'a')", None, "[b:(2)2, a]"),
    ("[a, ·]", None, "[a, ·]"),
    ("[a b, -]", None, "[a b, ·]"),
    ("[b:(2)2 a, ?]", None, "[b:(2)2 a, ?]"),
    ("[a ?, ·] sum over b", None, "[a ?, ·] sum over b"),
    ("[·] manual b", None, "[·] manual b"),
    ("[]", None, "[]"),
    ("A[I_a, J]", None, "[a, ·]"),
    ("W'[D_ba]", None, "[b a]"),
    ("C[I_{a,b}, K]", None, "[a b, ·]"),
    ("C[I_a, K] { U_b }", None, "[a, ·] sum over b"),
    ("{replicated}", 2, "[·, ·]"),
    ("{devices=[2,4]<=[8]}", None, "[a, b]"),
    ("{devices=[2,4]0,1,2,3,4,5,6,7}", None, "[a, b]"),
    ("{devices=[4,2]<=[2,4]T(1,0)}", None, "[b, a]"),
    ("{devices=[4,2]<=[8]}", None, "[a b:(1)2, b:(2)2]"),
    ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", None, "[a, ·]"),
    ("{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}", None, "[b, ·]"),
    ("{devices=[2,2,2]<=[8] last_tile_dims={replicated}}", None, "[a, b:(1)2]"),
    ("{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}", None, "[a, ·] sum over b"),
    ("{devices=[2,1,4]<=[8] last_tile_dims={manual}}", None, "[a, ·] manual b"),
    ("{devices=[1,2,4]<=[8] last_tile_dims={manual, unreduced}}", None, "[·] sum over b manual a"),
    ("{devices=[1,2,2,2]<=[8] last_tile_dims={manual, replicated, unreduced}}", None, "[·] sum over b:(2)2 manual a"),
    ('{devices=[2,1,4]<=[8] last_tile_dim_replicate metadata={op_name="f/{x}"}}', None, "[a, ·]"),
    ("{devices=[8]<=[8] shard_as 1}", None, "[a b]"),
    ("{maximal device=3}", 2, "all on device 3"),
    ("{manual}", 1, "[·] manual a b"),
    ("{unreduced}", 1, "[·] sum over a b"),
    ("{unknown}", 1, "unknown"),
    ("{mesh['a'=2,'b'=4], [{'a', ?}, {?}]}", None, "[a ?, ?]"),
    ("{mesh['a'=2,'b'=4], [{'b':(1)2}, {'b':(2)2}]}", None, "[b:(1)2, b:(2)2]"),
    ("{mesh['a'=2,'b'=4], [{'a'}, {}], manual={'b'}}", None, "[a, ·] manual b"),
    ("{mesh['x'=4,'y'=2], device_ids=([2,4]T(1,0)), [{'x'}, {'y'}]}", None, "[b, a]"),
    ("{mesh['x'=2,'y'=4], device_ids=(0,2,4,6,1,3,5,7), [{'x'}, {}]}", None, "[b:(2)2, ·]"),
    ("{mesh['a'=2,'b'=4], replicated}", 3, "[·, ·, ·]"),
    ("{mesh['a'=2,'b'=4], unreduced}", 1, "[·] sum over a b"),
    ("{mesh['a'=2,'b'=4,'c'=1], unreduced=max{'a','b'}}", 1, "[·] max over a b"),
    ('#sdy.sharding<@mesh, [{"a"}, {?}]>', None, "[a, ?]"),
    ('<@mesh, [{"b", "a"}p1, {}], replicated={}>', None, "[b a, ·]"),
    ('<[{"b":(1)2}, {}]>', None, "[b:(1)2, ·]"),
    ('[{"a"}, {}]', None, "[a, ·]"),
    ("#sdy.sharding<@mesh, []>", None, "[]"),
    ('#sdy.sharding<mesh<["x"=4, "y"=2]>, [{"x"}, {"y"}], unreduced={}>', None, "[a b:(1)2, b:(2)2]"),
    ("#sdy.sharding<mesh<[], device_ids=[3]>, []>", None, "all on device 3"),
    ('#sdy.sharding_per_value<[<@mesh, [{"a"}, {}], unreduced={"b"}>]>', None, "[a, ·] sum over b"),
]

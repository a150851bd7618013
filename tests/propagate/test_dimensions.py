"""Logical dimensions: those that a person would name, equal to what arithmetic ties together, and cut as a whole."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import ShardvizError, SpecError
from shardviz.propagate.seeding import Group, Opened

pytestmark = pytest.mark.long


def of(example) -> dict[str, set[str]]:
    return {d.name: {str(m) for m in d.arguments} for d in example.program.dimensions}


def members(text: str, *roots: str) -> set[str]:
    return {f"{root}{path}" for root in roots for path in text.split()}


BOTH = ("params", "momentum")

WEIGHTS = ("ln1", "ln2", "w1", "w2", "w3", "wq", "wk", "wv", "wo")

LLAMA = {
    "d": members(
        "['emb']:1 ['ln']:0 ['out']:0 "
        + " ".join(f"['layers']['{w}']:1" for w in ("ln1", "ln2", "w1", "w3", "wq", "wk", "wv"))
        + " ['layers']['w2']:2 ['layers']['wo']:3",
        *BOTH,
    ),
    "layers": members(" ".join(f"['layers']['{w}']:0" for w in WEIGHTS), *BOTH),
    "w1:2": members("['layers']['w1']:2 ['layers']['w3']:2 ['layers']['w2']:1", *BOTH),  # d_ff
    "h": members("['layers']['wq']:2 ['layers']['wk']:2 ['layers']['wv']:2 ['layers']['wo']:1", *BOTH),  # heads
    "k": members("['layers']['wq']:3 ['layers']['wk']:3", *BOTH),  # what queries and keys are compared in
    "wo:2": members("['layers']['wv']:3 ['layers']['wo']:2", *BOTH),
    "emb:0": members("['emb']:0", *BOTH),
    "v": members("['out']:1", *BOTH),
    "batch": {"tokens:0"},
    "sequence": {"tokens:1"},
}
MOE = {
    "d": members("['down']:2 ['gate']:1 ['up']:1 ['router']:0", "params") | {"x:1", "y:1"},
    "experts": members("['down']:0 ['gate']:0 ['up']:0", "params"),
    "f": members("['down']:1 ['gate']:2 ['up']:2", "params"),
    "e": members("['router']:1", "params"),  # the experts whole, which the program's shard_map does not cut here
    "batch": {"x:0", "y:0"},
}


def test_the_groups_that_a_person_would_name():
    assert of(sv.gallery.llama("70b")) == LLAMA
    assert of(sv.gallery.moe()) == MOE


def gpt(layers: int) -> dict[str, set[str]]:
    """What a person says of `gpt_2021`: each dimension, in parameters and both moments."""
    roots = [f"state['{tree}']" for tree in ("params", "mu", "nu")]
    blocks = [f"['h']['{layer}']" for layer in range(layers)]
    each = lambda text: members(" ".join(block + path for block in blocks for path in text.split()), *roots)
    norms = lambda at: " ".join(f"{at}['{name}']:0" for name in ("scale", "bias"))
    d_model = members("['wte']['embedding']:1 ['wpe']['embedding']:1 " + norms("['ln_f']"), *roots)
    d_model |= each(
        norms("['ln_1']") + " " + norms("['ln_2']") + " ['mlp']['down']['bias']:0 ['attn']['out']['bias']:0"
    )
    d_model |= each("['mlp']['up']['kernel']:0 ['mlp']['down']['kernel']:1 ['attn']['out']['kernel']:1")
    d_model |= each(" ".join(f"['attn']['{name}']['kernel']:0" for name in "qkv"))
    heads = each(" ".join(f"['attn']['{name}']['kernel']:1 ['attn']['{name}']['bias']:0" for name in "qkv"))
    return {
        "d_model": d_model,
        "heads": heads | each("['attn']['out']['kernel']:0"),
        "d_ff": each("['mlp']['up']['kernel']:1 ['mlp']['up']['bias']:0 ['mlp']['down']['kernel']:0"),
        "vocabulary": members("['wte']['embedding']:0", *roots),
        "sequence": {"tokens:1"} | members("['wpe']['embedding']:0", *roots),
        "batch": {"tokens:0"},
    }


def decoder(layers: int) -> dict[str, set[str]]:
    """What a person says of the flax decoder: each dimension, in the model and in both moments of its optimizer."""
    roots = ["model", "optimizer.opt_state[0].mu", "optimizer.opt_state[0].nu"]
    blocks = [f".blocks[{layer}]" for layer in range(layers)]
    each = lambda text: members(" ".join(block + path for block in blocks for path in text.split()), *roots)
    qkv = lambda d: " ".join(f".attention.{name}.kernel:{d}" for name in ("query", "key", "value"))
    inside = ".norm1.scale:0 .norm2.scale:0 .up.kernel:0 .down.kernel:1 .attention.out.kernel:1 " + qkv(0)
    return {
        "d_model": members(".embed.embedding:1 .norm.scale:0", *roots) | each(inside),
        "heads": each(qkv(1) + " .attention.out.kernel:0"),
        "d_ff": each(".up.kernel:1 .down.kernel:0"),
        "vocabulary": members(".embed.embedding:0", *roots),
        "batch": {"tokens:0"},
        "sequence": {"tokens:1"},
    }


@functools.cache
def small_decoder():
    sizes = {"vocabulary": 1024, "d_model": 64, "d_ff": 256, "heads": 4, "length": 32}
    return sv.gallery.decoder(layers=3, batch=8, **sizes)


def test_whole_tables_of_unrolled_programs():
    as_sets = lambda found: {frozenset(group) for group in found.values()}
    small = {"layers": 3, "batch": 8}
    gallery = sv.gallery
    assert as_sets(of(gallery.gpt_2021(**small, features=96, heads=4, vocabulary=1024, length=64))) == as_sets(gpt(3))
    assert as_sets(of(small_decoder())) == as_sets(decoder(3))


@pytest.mark.parametrize("together", [1, 7])
def test_layers_that_are_tried_each_for_itself_give_the_same_groups(monkeypatch, together):
    def step(weights, x):
        for up, down in weights:
            x = x + jnp.tanh(x @ up) @ down
        return x

    shape = jax.ShapeDtypeStruct
    weights = [(shape((8, 32), "float32"), shape((32, 8), "float32")) for _ in range(40)]
    found = lambda: sv.trace(step, weights, shape((4, 8), "float32"))._find_dimensions(shares.append)
    shares: list[float] = []
    expected = found()
    passes = len(shares)
    assert shares == sorted(shares) and shares[-1] == 1.0
    monkeypatch.setattr("shardviz.propagate.seeding._MOST_SEEDED", together)
    monkeypatch.setattr("shardviz.propagate.dimensions._of_layer", lambda group, seed, other: Group({seed}))
    assert [d.members for d in found()] == [d.members for d in expected] and len(shares) > 2 * passes


def test_experts_are_batched_and_heads_are_not():
    array = lambda *s: jax.ShapeDtypeStruct(s, "float32")
    found = lambda f, *args: {d.name for d in sv.trace(f, *args).dimensions if d.experts}

    def grouped(p, x, sizes):
        return jax.lax.ragged_dot(jnp.tanh(jax.lax.ragged_dot(x, p["up"], sizes)), p["down"], sizes)

    experts = {"up": array(8, 64, 256), "down": array(8, 256, 64)}
    assert found(grouped, experts, array(512, 64), jax.ShapeDtypeStruct((8,), "int32")) == {"experts"}

    def latent(p, x):  # attention that is batched over heads with weights: they are made by a projection before
        q = jnp.einsum("bshk,hkc->bshc", jnp.einsum("bsd,dhk->bshk", x, p["q"]), p["absorb"])
        return jnp.einsum("bshc,hcd->bsd", q, p["o"])

    weights = {"q": array(64, 8, 16), "absorb": array(8, 16, 32), "o": array(8, 32, 64)}
    assert not found(latent, weights, array(4, 128, 64))
    stacked = lambda p, x: jax.lax.scan(lambda x, w: (x @ w, None), x, p["w"])[0]
    assert not found(stacked, {"w": array(8, 64, 64)}, array(4, 64))


def test_heads_are_as_many_as_must_divide():
    heads = sv.gallery.llama("70b").program.dimensions.named("h")
    assert heads.sizes == (8, 64) and heads.size == 8


STEPS = {
    "dot": lambda x, y: x @ y,
    "add": lambda x, y: x + y,
    "turn": lambda x, y: x.T,
    "tanh": lambda x, y: jnp.tanh(x),
}


@st.composite
def graphs(draw):
    """A random program of 2-D arrays with a union-find of what it ties together: (function, shapes, classes)."""
    inputs = draw(st.integers(2, 4))
    parent: list[int] = []

    def new() -> int:
        parent.append(len(parent))
        return len(parent) - 1

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    def tie(i: int, k: int) -> None:
        parent[root(i)] = root(k)

    dims = [(new(), new()) for _ in range(inputs)]
    values = list(dims)
    steps = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["dot", "add", "turn", "tanh"]))
        a, b = draw(st.integers(0, len(values) - 1)), draw(st.integers(0, len(values) - 1))
        (i, k), (m, j) = values[a], values[b]
        if kind == "dot":
            tie(m, k)
            values.append((i, j))
        elif kind == "add":
            tie(m, i)
            tie(j, k)
            values.append((i, k))
        else:
            values.append((k, i) if kind == "turn" else (i, k))
        steps.append((kind, a, b))

    def run(arrays):
        made = list(arrays.values())
        for kind, a, b in steps:
            x, y = made[a], made[b]
            made.append(STEPS[kind](x, y))
        return tuple(made[inputs:])

    names = [f"arrays['{name}']" for name in "abcd"[:inputs]], [f"result[{n}]" for n in range(len(steps))]
    classes: dict[int, set[str]] = {}
    for name, pair in [*zip(names[0], dims, strict=True), *zip(names[1], values[inputs:], strict=True)]:
        for d, i in enumerate(pair):
            classes.setdefault(root(i), set()).add(f"{name}:{d}")
    twice = any(root(i) == root(k) for i, k in values)
    return run, dict.fromkeys("abcd"[:inputs], jax.ShapeDtypeStruct((8, 8), "float32")), classes, twice


def together(graphs):
    """Several graphs as one program, and what it ties together."""

    def run(g):
        return {name: graph[0](g[name]) for name, graph in graphs.items()}

    classes = set()
    for group, (_, _, found, _) in graphs.items():
        for members in found.values():
            if any(member.startswith("arrays") for member in members):
                named = (m.replace("arrays", f"g['{group}']").replace("result", f"result['{group}']") for m in members)
                classes.add(frozenset(named))
    return sv.trace(run, {name: graph[1] for name, graph in graphs.items()}), classes


@settings(max_examples=10)
@given(st.lists(graphs().filter(lambda graph: not graph[3]), min_size=5, max_size=5))
def test_groups_are_what_arithmetic_ties_together(five):
    """Fifty random programs, five in one; an array that has a dimension twice is the next test's."""
    program, classes = together(dict(zip("pqrst", five, strict=True)))
    assert {frozenset(str(m) for m in d.members) for d in program.dimensions} == classes
    # and cutting any of them whole moves no array: sums over them are all that is left to do
    of = {group: [d for d in program.dimensions if d.members[0].path[3] == group] for group in "pqrst"}
    for together_cut in itertools.zip_longest(*of.values()):
        cut = {axis: d for axis, d in zip("abcde", together_cut, strict=True) if d is not None}
        plan = sv.Plan(dict.fromkeys("abcde", 2))
        for axis, dimension in cut.items():
            plan = plan.with_dimension(dimension, axis)
        report = program.propagate(plan)
        assert {c.kind for c in report.collectives} <= {"all-reduce"}
        found = {f"{v.name}:{d}": axes for v in report.arguments for d, axes in enumerate(v.spec.dims) if axes}
        assert found == {str(m): (axis,) for axis, d in cut.items() for m in d.arguments}


def test_a_state_in_one_tuple_has_the_dimensions_of_its_parts():
    """A number in a path is a layer's, or the place of momentum beside its parameters."""
    array = lambda *shape: jax.ShapeDtypeStruct(shape, "float32")
    params = [{"up": array(16, 64), "bias": array(64), "down": array(64, 16)}] * 3

    def loss(params, x):
        for p in params:
            x = x + jnp.tanh(x @ p["up"] + p["bias"]) @ p["down"]
        return jnp.mean(x**2)

    def step(params, momentum, x):
        grads = jax.grad(loss)(params, x)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum

    apart = sv.trace(step, params, params, array(32, 16))
    together = sv.trace(lambda state, x: step(*state, x), (params, params), array(32, 16))
    as_apart = lambda name: name.replace("state[0]", "params").replace("state[1]", "momentum")
    groups = lambda program: {frozenset(as_apart(str(m)) for m in d.arguments) for d in program.dimensions}
    assert groups(together) == groups(apart) and {len(group) for group in groups(apart)} == {18, 13, 1}
    for plan in together.presets({"data": 4, "model": 2}).values():
        assert not together.propagate(plan).findings.of("comes-back-otherwise")


def test_an_array_that_has_a_dimension_twice_says_so():
    program = sv.trace(lambda w, x: x + x @ w, *[jax.ShapeDtypeStruct(s, "float32") for s in ((8, 8), (16, 8))])
    (wide,) = (d for d in program.dimensions if d.conflicts)
    assert wide.conflicts == {"w": (0, 1)} and "so one of these takes it" in program.dimensions.text()
    plan = sv.Plan({"x": 2})
    specs = lambda plan: {n: str(s.canonical()) for n, s in program.bind(plan).in_specs.items()}
    assert specs(plan.with_dimension(wide, "x")) == {"w": "P('x')", "x": "P(None, 'x')"}
    assert specs(plan.with_dimension(wide, "x", prefer={"w": 1})) == {"w": "P(None, 'x')", "x": "P(None, 'x')"}
    with pytest.raises(ShardvizError, match="no member w:2"):
        plan.with_dimension(wide, "x", prefer={"w": 2})


def matmul(w, x):
    return x @ w


SHAPES = [jax.ShapeDtypeStruct(s, "float32") for s in ((8, 24), (16, 8))]


def test_cuts_go_before_specs_and_an_axis_cuts_an_array_once():
    program = sv.trace(matmul, *SHAPES)
    dims = program.dimensions
    base = sv.Plan({"a": 2, "b": 2}, (P(None, "a"), P("b")), P("b"))
    plan = base.with_dimension(dims.named("w:0"), "a")
    bound = program.bind(plan)
    assert {n: str(s) for n, s in bound.in_specs.items()} == {"w": "P('a', None)", "x": "P('b', 'a')"}
    assert str(bound.out_specs["result"]) == "P('b', None)"
    both = plan.with_dimension(dims.named("x:0"), ("b",)).with_dimension(dims.named("w:1"), "b")
    assert (
        str(program.bind(both).out_specs["result"]) == "P(None, 'b')"
    )  # b cuts the result once: where it was put last
    assert program.bind(both.with_dimension(dims.named("w:1"), None)).in_specs["w"].dims == (("a",), ())
    again = plan.with_spec("w", P())
    assert str(program.bind(again).in_specs["w"].canonical()) == "P()"
    renamed = plan.rename_axis("a", "z")
    assert str(program.bind(renamed).in_specs["w"]) == "P('z', None)"
    space: dict = {}
    exec(program.plan_code(both), space)
    assert program.bind(space["plan"]) == program.bind(both)


def test_what_cannot_be_cut_is_said():
    program = sv.trace(matmul, *SHAPES)
    with pytest.raises(ShardvizError, match="there is no dimension 'ff'; there are"):
        program.propagate(sv.Plan({"a": 2}).with_dimension("ff", "a"))
    with pytest.raises(SpecError, match=r"shard 'w:0' along 'q': the mesh has no such axis; it has 'a'"):
        sv.Plan({"a": 2}).with_dimension("w:0", "q")
    with pytest.raises(ShardvizError, match=r"with_dimension\(3\): expected a logical dimension's name"):
        sv.Plan({"a": 2}).with_dimension(3, "a")
    with pytest.raises(ShardvizError, match="a name alone does not tell"):
        sv.Plan({"a": 2}).with_dimension("w:0", "a", prefer={"w": 0})
    with pytest.raises(SpecError, match=r"the mesh has no such axis; it has 'a'"):
        sv.Plan({"a": 2}).with_dimension(program.dimensions.named("w:0"), "q")
    with pytest.raises(SpecError, match="dimension 0 is 8, which is not divisible by 'a'=3"):
        program.bind(sv.Plan({"a": 3}).with_dimension(program.dimensions.named("w:0"), "a"))
    with pytest.raises(ShardvizError, match="there is no dimension 'ff'; there are"):
        program.dimensions.named("ff")


def test_names_can_be_given():
    dims = sv.trace(matmul, *SHAPES).dimensions
    named = dims.renamed({"w:0": "d_model", "x:0": "batch"})
    assert named.named("d_model").members == dims.named("w:0").members
    with pytest.raises(ShardvizError, match="two dimensions would be called 'd'"):
        dims.renamed({"w:0": "d", "x:0": "d"})


@pytest.mark.parametrize("place", [0, 1])
def test_layers_that_are_stacked_along_any_dimension_are_one(place):
    """MaxText scans its parameters along their second dimension."""

    def step(params, x):
        def loss(params, x):
            layer = lambda x, w: (jax.nn.relu(x @ w["up"]) @ w["down"] * w["scale"], None)
            first = jax.tree.map(lambda w: jnp.moveaxis(w, place, 0), params)
            return jax.lax.scan(layer, x, first)[0].sum()

        return jax.tree.map(lambda w, g: w - g, params, jax.grad(loss)(params, x))

    shapes = {"up": [64, 256], "down": [256, 64], "scale": [64]}
    params = {n: jax.ShapeDtypeStruct((*s[:place], 12, *s[place:]), jnp.float32) for n, s in shapes.items()}
    dimensions = sv.trace(step, params, jax.ShapeDtypeStruct((32, 64), jnp.float32)).dimensions
    layers = dimensions.named("layers")
    assert layers.stacked and {str(m) for m in layers.arguments} == {f"params['{n}']:{place}" for n in shapes}
    assert sum(d.stacked for d in dimensions) == 1 and dimensions.named("batch").size == 32


def mlp_of(layers, extra=None):
    """A network of equal layers; beside the layer `extra` stands a product with an array of its own."""
    params = [{"up": jax.ShapeDtypeStruct((64, 128 + 128 * (n % 2)), jnp.float32)} for n in range(layers)]
    params = [p | {"down": jax.ShapeDtypeStruct(p["up"].shape[::-1], jnp.float32)} for p in params]

    def loss(params, x, more):
        for n, p in enumerate(params):
            h = x @ p["up"]
            x = x + jax.nn.relu(h) @ p["down"] + (jnp.sum(h @ more) if n == extra else 0)
        return jnp.sum(x * x)

    more = jax.ShapeDtypeStruct((256, 32), jnp.float32)
    return sv.trace(jax.grad(loss), params, jax.ShapeDtypeStruct((32, 64), jnp.float32), more)


def test_more_layers_take_no_more_runs_of_shardy(monkeypatch):
    runs, caught = [], Opened.caught
    monkeypatch.setattr(Opened, "caught", lambda *args: runs.append(args) or caught(*args))

    def counted(layers):
        runs.clear()
        found = sorted(len(d.arguments) for d in mlp_of(layers).dimensions)
        assert found == [1, 1, 1, layers, layers, 2 * layers + 1]  # two of `more`, the batch, widths, and features
        return len(runs)

    assert counted(6) == counted(140)


def test_a_layer_that_is_unlike_the_others_is_found():
    """Its width is also a row of another array, which no other layer's is."""
    found = {frozenset(str(m) for m in d.arguments) for d in mlp_of(6, extra=3).dimensions}
    assert members("[3]['up']:1 [3]['down']:0", "params") | {"more:0"} in found
    alike = [members(f"[{n}]['up']:1 [{n}]['down']:0", "params") for n in (1, 5)]
    assert frozenset.union(*map(frozenset, alike)) in found

"""A value constrained by a plan: the report is that of the function with the constraint written by hand."""

from __future__ import annotations

import inspect
import sys

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
import shardviz.gallery.llama
from shardviz.errors import SpecError, TraceError
from shardviz.gallery import llama, mlp
from shardviz.judge.report import Report
from tests.plan.edited import edited, module_of, said

pytestmark = pytest.mark.slow

LLAMA, MLP = sys.modules["shardviz.gallery.llama"], sys.modules["shardviz.gallery.mlp"]
H = '    h = rms_norm(x, p["ln2"])\n'
GATE = '    g = jax.nn.silu(h @ p["w1"]) * (h @ p["w3"])\n'
WRITTEN = "jax.lax.with_sharding_constraint"
RELU = '        x = jax.nn.relu(x @ layer["w"] + layer["b"])\n'


def line_of(module, text: str) -> str:
    with open(module.__file__) as file:
        number = [n for n, line in enumerate(file, 1) if line.strip() == text.strip()]
    assert len(number) == 1
    return f"{module.__file__.rpartition('/')[2]}:{number[0]}"


@pytest.fixture(scope="module")
def small():
    return llama("8b", layers=2, length=256)


@pytest.mark.parametrize(
    ("what", "line", "spec", "before", "after"),
    [
        ("h", H, P("data", None, "model"), H, f"{H}    h = {WRITTEN}(h, P('data', None, 'model'))\n"),
        (
            'h @ p["w1"]',
            GATE,
            P("model", None, "data"),
            'jax.nn.silu(h @ p["w1"])',
            f"jax.nn.silu({WRITTEN}(h @ p['w1'], P('model', None, 'data')))",
        ),
        ("h", H, P("model", P.UNCONSTRAINED), H, f"{H}    h = {WRITTEN}(h, P('model', P.UNCONSTRAINED))\n"),
    ],
)
def test_a_scanned_block_with_a_gradient(small, tmp_path, what, line, spec, before, after):
    by_hand = edited(LLAMA, tmp_path, (before, after)).llama("8b", layers=2, length=256)
    plan = small.plan.constrain(what, spec, line=line_of(LLAMA, line))
    found = small.program.propagate(plan)
    assert said(found) == said(by_hand.program.propagate(by_hand.plan))
    assert said(found) != said(small.program.propagate(small.plan))
    assert found.plan.constraints[0].source.short == line_of(LLAMA, line)


def test_at_every_level(tmp_path):
    ours = mlp()
    by_hand = edited(MLP, tmp_path, (RELU, f"{RELU}        x = {WRITTEN}(x, P(None, 'data'))\n")).mlp()
    plan = ours.plan.constrain("x", P(None, "data"))
    for ask in ("partition", "compile"):
        assert said(getattr(ours.program, ask)(plan)) == said(getattr(by_hand.program, ask)(by_hand.plan))


def test_a_line_that_python_runs_twice(tmp_path):
    ours = mlp()
    by_hand = edited(MLP, tmp_path, (RELU, f"{RELU}        x = {WRITTEN}(x, P(None, 'data'))\n")).mlp()
    plan = ours.plan.constrain("x", P(None, "data"), line=line_of(MLP, RELU))
    assert said(ours.program.propagate(plan)) == said(by_hand.program.propagate(by_hand.plan))
    assert ours.program.bind(plan).constraints[0].times == 2


SOURCE = """
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P

def step(w, x):
    def loss(w):
        def layer(x, w):
            h = jnp.tanh(x @ w)
            g = jax.checkpoint(lambda h: jnp.sin(h) * 2 @ w.T)(h)
            return g + x, jnp.sum(h)
        x1 = {x1}
        y, sums = jax.lax.scan(layer, x1, w)
        per_row = jax.vmap(lambda row: {row})(y)
        swapped = {swapped}
        return jnp.sum(swapped) + jnp.sum(sums), per_row
    (value, aux), gradient = jax.value_and_grad(loss, has_aux=True)(w)
    new = {new}
    return new, value, aux
"""
PLACES = {"x1": "x * 3", "row": "jnp.exp(row)", "swapped": "per_row.T @ per_row", "new": "w - 0.1 * gradient"}
"""Before a scan, under vmap, behind it, and after the backward pass."""


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("constrained")
    args = jax.ShapeDtypeStruct((3, 16, 16), "float32"), jax.ShapeDtypeStruct((32, 16), "float32")

    def program(**constrained: str) -> tuple[sv.Program, sv.Plan]:
        written = {k: f"{WRITTEN}({v}, {constrained[k]})" if k in constrained else v for k, v in PLACES.items()}
        module = module_of(SOURCE.format(**written), folder / f"m{abs(hash(tuple(sorted(constrained.items()))))}.py")
        mesh = {"a": 2, "b": 4}
        return sv.trace(module.step, *args), sv.Plan(mesh, (P(None, "a", "b"), P("b")))

    return program, program()


SPECS = {
    "x1": ("P('a')", "P('b', 'a')", "P(('a', 'b'),)", "P()"),
    "row": ("P('b')", "P('a')", "P()"),
    "swapped": ("P('a', 'b')", "P(None, 'b')", "P('b')"),
    "new": ("P(None, 'b')", "P(None, None, ('b', 'a'))", "P()"),
}


@pytest.mark.long
@settings(max_examples=8)
@given(st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in SPECS.items()}))
def test_any_places_are_as_by_hand(traced, chosen):
    make, (ours, plan) = traced
    for place, spec in chosen.items():
        plan = plan.constrain(PLACES[place], eval(spec))
    by_hand, bare = make(**chosen)
    assert said(ours.propagate(plan)) == said(by_hand.propagate(bare))


def test_a_report_s_own_value(small):
    report = small.program.propagate(small.plan)
    (gate,) = (v for v in report.intermediates if v.label == "g")
    line = line_of(LLAMA, GATE)
    first, second = [v for v in report.intermediates if v.source and v.source.short == line and v.op == "dot_general"][
        :2
    ]
    for value, name in ((gate, "g"), (first, 'h @ p["w1"]'), (second, 'h @ p["w3"]')):
        plan = small.plan.constrain(value, P("data"))
        assert plan.constraints[0].value.name == name
        assert small.program.bind(plan).constraints[0].source.short == line
    backward = next(v for v in report.intermediates if "transpose(jvp" in v.name_stack)
    with pytest.raises(SpecError, match="backward pass of llama"):
        small.plan.constrain(backward, P())


def test_it_outlives_what_changes_around_it(small):
    plan = small.plan.constrain("h", P("data", None, "model"), line=line_of(LLAMA, H))
    wider = plan.with_mesh({"data": 4, "model": 2}).with_spec("tokens", P())
    assert small.program.bind(wider).constraints == small.program.bind(plan).constraints
    renamed = plan.rename_axis("model", "tp")
    assert str(renamed.constraints[0].spec) == "P('data', None, 'tp')"
    assert str(plan.without_axis("model").constraints[0].spec) == "P('data', None, None)"
    names: dict = {}
    exec(small.program.plan_code(plan), names)
    assert small.program.bind(names["plan"]) == small.program.bind(plan)
    assert hash(names["plan"]) == hash(names["plan"].with_mesh(plan.mesh))
    report = small.program.propagate(plan)
    assert Report.from_json(report.to_json()).plan == report.plan
    assert said(sv.trace(small.fn, *small.args, **small.options).propagate(plan)) == said(report)
    assert small.program.propagate(plan.unconstrain("h")).plan.constraints == ()


def test_lines_added_above_move_it_and_lines_gone_are_told(small, tmp_path):
    report = small.program.propagate(small.plan)
    value = next(v for v in report.intermediates if v.label == "g")
    plan = small.plan.constrain(value, P("data"))
    assert plan.constraints[0].value.text == GATE.strip()

    def program(*changes: tuple[str, str]) -> sv.Program:
        source = inspect.getsource(LLAMA)
        for before, after in changes:
            assert source.count(before) == 1
            source = source.replace(before, after)
        (tmp_path / str(len(list(tmp_path.iterdir())))).mkdir()
        folder = max(tmp_path.iterdir(), key=lambda p: int(p.name))
        return module_of(source, folder / "llama.py").llama("8b", layers=2, length=256).program

    moved = program((H, f"    # two\n    # lines\n{H}"))
    assert moved.bind(plan).constraints[0].source.line == value.source.line + 2
    gone = program((GATE, GATE.replace("g =", "gate =")), ("x + g @", "x + gate @"))
    with pytest.raises(SpecError, match=r"'g at llama\.py:\d+' \(g = jax.*no such value any more.*gate \(llama"):
        gone.propagate(plan)


def two_ways(x, w):
    h = x @ w
    parts = jnp.split(h, 2)
    same = h
    tree = {"a": h * 2, "b": jnp.sum(h)}
    del same
    unused = jnp.cos(h)
    del unused
    twice = helper(h)
    rows = jax.vmap(jnp.sin)(h)
    return parts[0] + tree["a"][:8] + twice[:8] + rows[:8]


def helper(h):
    kept = h + 1
    jnp.sum(h * 3)
    return kept


@pytest.mark.parametrize(
    ("what", "spec", "message"),
    [
        ("nothing", P(), r"no such value any more, or never did; there are h \(test_constrain.py:\d+\)"),
        ("parts", P(), "makes several arrays"),
        ("same", P(), "no such value any more"),
        ("twice", P(), "is not the one array that its last operation makes"),
        ("tree", P(), "is not the one array"),
        ("rows", P(), "is not the one array"),
        ("h", P("c"), "the mesh has no axis 'c'"),
        ("h", P(None, None, "a"), "3 entries for an array of rank 2"),
        ("h", P("a", "a"), "'a'"),
        ("dot_general.3", P(), r"plan.constrain\(report.value\('dot_general.3'\)"),
        (None, P(), "expected a variable such as 'h'"),
        ("h", P(unreduced={"a"}), "nothing of partial sums or memories"),
    ],
)
def test_what_cannot_be_constrained_is_said(what, spec, message):
    x, w = jax.ShapeDtypeStruct((16, 8), "float32"), jax.ShapeDtypeStruct((8, 8), "float32")
    program = sv.trace(two_ways, x, w)
    with pytest.raises(SpecError, match=message):
        program.bind(sv.Plan({"a": 2}).constrain(what, spec))


def test_inside_a_shard_map():
    def body(x):
        h = x * 2
        return h + 1

    def fn(x, y):
        z = jax.shard_map(body, in_specs=P("a"), out_specs=P("a"), axis_names={"a"})(x)
        k = y * z
        return k

    args = (jax.ShapeDtypeStruct((16, 8), "float32"),) * 2
    program, plan = sv.trace(fn, *args), sv.Plan({"a": 2, "b": 4})
    with pytest.raises(SpecError, match="inside a shard_map over 'a', where each device along that axis"):
        program.bind(plan.constrain("h", P("a")))
    found = program.propagate(plan.constrain("h", P(None, "b")).constrain("k", P("a", "b")))
    assert str(found.outputs[0].spec) == "P('a', 'b')"
    assert found.plan.constraints[0].shapes == ((8, 8),)


def test_it_stands_in_the_program_that_is_compiled():
    args = (jax.ShapeDtypeStruct((16, 8), "float32"), jax.ShapeDtypeStruct((8, 8), "float32"))
    program, plan = sv.trace(helper_step, *args), sv.Plan({"a": 2, "b": 4}).constrain("h", P("b", "a"))
    assert '[{"b"}, {"a"}]' in program.texts(plan)["stablehlo"]
    assert "sharding_constraint" not in program.texts(plan)["jaxpr"]
    exported = jax.export.export(jax.jit(helper_step))(*args)
    with pytest.raises(TraceError, match="no line of it can be constrained"):
        sv.trace(exported).bind(plan)


def helper_step(x, w):
    h = x @ w
    return jnp.sin(h)


def test_under_vmap_it_is_of_one_example():
    args = (jax.ShapeDtypeStruct((4, 16, 8), "float32"), jax.ShapeDtypeStruct((4, 8, 8), "float32"))
    program, plan = sv.trace(jax.vmap(helper_step), *args), sv.Plan({"a": 2, "b": 4}).constrain("h", P("b", "a"))
    (made,) = (v for v in program.propagate(plan).intermediates if v.op == "sin")
    assert made.shape == (4, 16, 8)
    assert str(made.spec) == "P(None, 'b', 'a')"


def test_it_is_shown(small):
    text = small.program.propagate(small.plan.constrain("h", P("data", None, "model"), line=line_of(LLAMA, H))).text()
    assert "Constraints of the plan: 1 value that the function itself does not constrain" in text
    assert line_of(LLAMA, H) in text


def test_a_step_inside_of_a_library_s_function_is_not_what_the_line_makes():
    """`jnp.var(h, 0)` squares all of `h` on its way: the line's value has one dimension less."""

    def spread(x):
        h = jnp.sin(x)
        v = jnp.var(h, 0)
        return v

    program = sv.trace(spread, jax.ShapeDtypeStruct((16, 8), jnp.float32))
    plan = sv.Plan({"a": 2}, (P("a"),))
    values = program.propagate(plan).intermediates
    (square,) = [v for v in values if v.op == "square"]
    assert square.source is not None and square.source.line == spread.__code__.co_firstlineno + 2
    with pytest.raises(SpecError, match="a function of a library makes it on its way"):
        plan.constrain(square, P("a", None))
    assert [v.shape for v in values if v.label == "v"] in ([], [(8,)])

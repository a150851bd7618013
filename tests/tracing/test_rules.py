"""Rules: specs by filter, the first that catches wins; the table of who catches what; the Python that says it again."""

import fnmatch
import pickle
import re
import time

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.notation import Spec
from shardviz.tracing.rules import Leaf, Rules, catches, filter_text
from tests.view.sanitizer import read

MESH = {"data": 2, "model": 4}
SHAPES = {"embed": (64, 8), "layers": [{"wq": (8, 8), "norm": (8,)}, {"wq": (8, 8), "norm": (8,)}], "step": ()}


def program():
    params = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32), SHAPES, is_leaf=lambda x: isinstance(x, tuple)
    )
    return sv.trace(lambda params, x: (params, x * 2), params, jax.ShapeDtypeStruct((16, 8), jnp.float32))


PROGRAM = program()
NAMES = [a.name for a in PROGRAM.arguments]
PATTERNS = st.lists(st.sampled_from([*"*?'[].0wxq", "layers", "params", "norm"]), max_size=5).map("".join)
SPECS = st.sampled_from([P(), P("data"), P("model"), P(("data", "model"))])


def bound(plan, of=PROGRAM):
    return {name: str(spec.canonical()) for name, spec in of.bind(plan).in_specs.items()}


def means(pattern, name):
    """Whether a pattern is a glob of the whole path, or of some of its keys in a row, with a dot between two."""
    glob = lambda text, by: fnmatch.fnmatchcase(text, by.replace("[", "[[]"))
    plain = lambda text: re.sub(r"\['([^'\]]*)'\]|\[([^\['\]]*)\]", r".\1\2", text).strip(".")
    keys, dotted = plain(name).split("."), plain(pattern)
    runs = [".".join(keys[i:j]) for i in range(len(keys)) for j in range(i + 1, len(keys) + 1)]
    return glob(name, pattern) or (bool(dotted) and any(glob(run, dotted) for run in runs))


@given(PATTERNS, st.sampled_from(NAMES))
def test_a_pattern_is_a_glob_of_the_path_or_of_keys_of_it(pattern, name):
    assert catches(pattern, Leaf(name, (), None, ())) == means(pattern, name)


def test_a_pattern_is_read_the_way_it_is_written():
    name = "params['layers'][0]['mlp']['down']['kernel']"
    for pattern in ("*kernel", "['down']", "down", "mlp.down", "mlp/down/kernel", "layers.*.down", "params*", name):
        assert catches(pattern, Leaf(name, (), None, ())), pattern
    for pattern in ("dow", "own", "kern*l.down", "down.mlp", "up", "", "0.down"):
        assert not catches(pattern, Leaf(name, (), None, ())), pattern


@given(st.text("ab*?", max_size=24), st.text("ab", max_size=40))
def test_patterns_of_many_stars_match_what_fnmatch_matches(pattern, name):
    assert catches(pattern, Leaf(name, (), None, ())) == fnmatch.fnmatchcase(name, pattern)


@given(st.lists(st.sampled_from(["*", "*a", "*?a", "*aa?", "a*a"]), min_size=8, max_size=60).map("".join))
def test_a_pattern_of_many_stars_takes_no_longer_than_pattern_times_name(pattern):
    """200 names in far less than the seconds that each took where every star was tried at every place."""
    names = [Leaf("a" * (20 + i) + "b", (), None, ()) for i in range(200)]
    start = time.process_time()
    for name in names:
        catches(pattern + "c", name)
        catches(pattern + "b", name)
    assert time.process_time() - start < 2


def test_the_time_that_rules_take_grows_with_their_number_and_the_length_of_a_pattern_alone():
    """10 MB of pattern took 73 s for one leaf; 1,000 rules took 50 times as long as 500."""
    leaf = Leaf("params['layers'][0]['mlp']['down']['kernel']", (), None, ())
    start = time.process_time()
    for pattern in ("?*x" * 3_000_000, "*" * 10_000_000, "k" * 10_000_000, "*k?" * 3_000_000):
        catches(pattern, leaf)
    assert time.process_time() - start < 15
    rules = Rules([(f"*x{i}", P()) for i in range(2_000)])
    start = time.process_time()
    assert all(rules.winner(leaf) is None for _ in range(20))
    assert time.process_time() - start < 4


@given(st.lists(st.tuples(PATTERNS, SPECS), max_size=4))
def test_every_leaf_is_won_by_the_first_rule_that_catches_it_or_by_none(pairs):
    table = PROGRAM.rules_table(sv.Plan(MESH, rules=pairs))
    first = {}
    for name in NAMES:
        hits = [i for i, (p, _) in enumerate(pairs) if means(p, name)]
        first[name] = hits
    assert [row.caught for row in table.rows] == [sum(i in hits for hits in first.values()) for i in range(len(pairs))]
    for i, row in enumerate(table.rows):
        assert list(row.wins) == [name for name in NAMES if first[name][:1] == [i]]
        assert row.loses == tuple((n, first[n][0] + 1) for n in NAMES if i in first[n][1:])
    assert [name for name, _ in table.uncaught] == [name for name in NAMES if not first[name]]


def test_edits_go_before_rules_and_rules_before_in_specs():
    plan = sv.Plan(
        MESH,
        in_specs=({"embed": P("data"), "layers": P("data"), "step": None}, P("data")),
        edits={"params['layers'][1]['wq']": P(None, "data")},
        rules=[("*wq']", P("model"))],
    )
    assert bound(plan) == {
        "params['embed']": "P('data')",
        "params['layers'][0]['norm']": "P('data')",
        "params['layers'][0]['wq']": "P('model')",
        "params['layers'][1]['norm']": "P('data')",
        "params['layers'][1]['wq']": "P(None, 'data')",
        "params['step']": "P()",
        "x": "P('data')",
    }
    row = PROGRAM.rules_table(plan).rows[0]
    assert row.edited == ("params['layers'][1]['wq']",)


@pytest.mark.parametrize(
    ("filter", "caught"),
    [
        ("*wq']", 2),
        (sv.Rules.path_ends_with("wq"), 2),
        (sv.Rules.path_ends_with(0, "wq"), 1),
        (lambda path, array: array.ndim == 2, 4),
        (lambda path, array: "layers" in path, 4),
        (("*norm']", sv.Rules.path_ends_with("embed")), 3),
        (..., 7),
        (False, 0),
        (jax.ShapeDtypeStruct, 7),
    ],
)
def test_what_a_filter_may_be(filter, caught):
    row = PROGRAM.rules_table(sv.Plan(MESH, rules=[(filter, None)])).rows[0]
    assert row.caught == caught
    assert "0x" not in row.rule


def test_filters_of_nnx_see_the_variable_that_holds_an_array():
    nnx = pytest.importorskip("flax.nnx")
    model = nnx.eval_shape(lambda: nnx.BatchNorm(8, rngs=nnx.Rngs(0)))
    of = sv.trace(model, jax.ShapeDtypeStruct((16, 8), jnp.float32))

    def caught(filter):
        return [n.removeprefix("model.") for n in of.rules_table(sv.Plan(MESH, rules=[(filter, None)])).rows[0].wins]

    assert caught(nnx.Param) == ["bias", "scale"]
    assert caught(nnx.BatchStat) == ["mean", "var"]
    assert caught(nnx.Not(nnx.Param)) == ["mean", "var", "x"]
    assert caught(nnx.All(nnx.Param, sv.Rules.path_ends_with("bias"))) == ["bias"]
    assert caught((nnx.BatchStat, nnx.PathContains("bias"))) == ["bias", "mean", "var"]
    some = nnx.filterlib.PathIn(("scale",), ("bias",))
    assert caught(some) == ["bias", "scale"]
    assert filter_text(some) == "nnx.filterlib.PathIn(('bias',), ('scale',))"
    assert filter_text(nnx.All(nnx.Param, nnx.Not(lambda p, v: True))).startswith("nnx.All(nnx.Param, nnx.Not(<lambda>")
    plan = sv.Plan(MESH, rules=[(nnx.Any(nnx.Param, "tag"), P("model")), (nnx.Not(nnx.Param), None)])
    again = rebuilt(of, plan)
    assert of.bind(again) == of.bind(plan)
    assert len(again.rules) == 2


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            [("*norm']", P()), (..., P("data", "model"))],
            "params['step'] P('data', 'model'): 2 entries for an array of rank 0, shape (); leave out 2 (rule 2, ...)",
        ),
        (
            [("*wq']", P("pipe"))],
            "params['layers'][0]['wq'] P('pipe'): the mesh has no axis 'pipe'; it has 'data', 'model'. Use one of "
            "these, or add 'pipe' to the mesh (rule 1, \"*wq']\")",
        ),
    ],
)
def test_a_spec_that_does_not_fit_is_the_rules_fault(rules, message):
    plan = sv.Plan(MESH, rules=rules)
    with pytest.raises(sv.errors.SpecError) as error:
        PROGRAM.bind(plan)
    assert str(error.value) == message
    assert any(row.unfit for row in PROGRAM.rules_table(plan).rows)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([(3, P())], "3 is no filter: expected a pattern of the tree path such as '\\*kernel'"),
        ([("*", "data")], "expected a PartitionSpec"),
        ([("*",)], "expected a rule \\(filter, spec\\)"),
        ([(lambda path, array: path.nope, P())], "the filter <lambda> at test_rules.py:\\d+ raised AttributeError for"),
    ],
)
def test_what_is_no_rule_is_said(rules, message):
    with pytest.raises(sv.errors.ShardvizError, match=message):
        PROGRAM.bind(sv.Plan(MESH, rules=rules))


def test_plans_with_rules_are_values():
    one = sv.Plan(MESH, rules=[(sv.Rules.path_ends_with("wq"), P("data", "model")), ("*", None)])
    same = sv.Plan(MESH).with_rules({sv.Rules.path_ends_with("wq"): P("data", "model"), "*": None})
    assert one == same and hash(one) == hash(same)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != one.with_rules([]) and one.with_rules([]) == sv.Plan(MESH)
    assert one != sv.Plan(MESH, rules=[*reversed(one.rules.rules)])
    renamed = one.rename_axis("model", "tensor").without_axis("data")
    assert renamed.rules.rules[0].spec == Spec(((), ("tensor",)))
    assert str(one.rules) == "1 path_ends_with('wq') → P('data', 'model')\n2 '*' → P()"


def rebuilt(of, plan):
    space = {}
    exec(of.plan_code(plan), space)
    return space["plan"]


@pytest.mark.parametrize("edits", [{}, {"params['layers'][0]['wq']": P(None, "data"), "x": P()}])
def test_code_writes_rules_back(edits):
    rules = [(sv.Rules.path_ends_with("wq"), P("model")), ("*norm']", None)]
    plan = sv.Plan(MESH, (None, P("data")), edits=edits, rules=rules)
    again = rebuilt(PROGRAM, plan)
    assert again.rules == plan.rules
    assert bound(again) == bound(plan)


def test_code_spells_out_what_a_function_filters():
    plan = sv.Plan(MESH, rules=[(lambda path, array: array.ndim == 2, P("data")), ("*", None)])
    again = rebuilt(PROGRAM, plan)
    assert not again.rules
    assert bound(again) == bound(plan)


def test_the_table_says_who_wins_in_text_and_html():
    rules = [("*[0]*", P("model")), ("*wq']", None), ("*bias", P()), ("*step']", P("data")), ("<b>", P())]
    table = PROGRAM.rules_table(sv.Plan(MESH, rules=rules))
    text = table.text()
    assert text == repr(table) == table._repr_mimebundle_()["text/plain"]
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines == [
        "rule filter spec matches wins",
        "1 '*[0]*' P('model') 2 2",
        "wins params['layers'][0]['norm'], params['layers'][0]['wq']",
        '2 "*wq\']" P() 2 1',
        "wins params['layers'][1]['wq']",
        "rule 1 wins params['layers'][0]['wq']",
        "3 '*bias' P() 0 0",
        "matches none",
        "4 \"*step']\" P('data') 1 1",
        "wins params['step']",
        "does not fit: params['step'] P('data'): 1 entries for an array of rank 0, shape (); leave out 1",
        "5 '<b>' P() 0 0",
        "matches none",
        "No rule matches 3 arrays: params['embed'] P(), params['layers'][1]['norm'] P(), x P()",
    ]
    html = table.html()
    assert "&lt;b&gt;" in html and "<b>'<b>" not in html
    assert not read(html).faults

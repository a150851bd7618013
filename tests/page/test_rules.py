"""The pane of rules: what each catches, which wins, what none catches; and every change of them by a person."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from tests.page.documents import rows, said, table
from tests.page.page import CONTRAST, UNREADABLE

MESH = {"data": 4, "model": 2}


def step(params, x):
    return jnp.tanh(x @ params["up"]["kernel"] + params["up"]["bias"]) @ params["down"]["kernel"]


def explorer(rules=()):
    shapes = {"up": {"kernel": (16, 64), "bias": (64,)}, "down": {"kernel": (64, 16)}}
    params = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s, jnp.float32), shapes, is_leaf=lambda s: isinstance(s, tuple)
    )
    program = sv.trace(step, params, jax.ShapeDtypeStruct((8, 16), jnp.float32))
    state = ExplorerState(program, sv.Plan(MESH, rules=rules), level="propagated", debounce=60)
    return Explorer(state)


def specs(state):
    return {name: str(spec.canonical()) for name, spec in state.bound.in_specs.items() if spec.axes}


UP, DOWN, BIAS = "params['up']['kernel']", "params['down']['kernel']", "params['up']['bias']"


def test_each_change_of_the_rules_is_a_change_of_the_plan():
    state = explorer().state
    assert state.add_rule("*kernel']", "P('data', 'model')")
    assert specs(state) == {UP: "P('data', 'model')", DOWN: "P('data', 'model')"}
    assert state.add_rule("*up*", "P('model')")
    assert specs(state) == {UP: "P('data', 'model')", DOWN: "P('data', 'model')", BIAS: "P('model')"}
    assert state.move_rule(1, 0)
    assert specs(state) == {UP: "P('model')", DOWN: "P('data', 'model')", BIAS: "P('model')"}
    assert state.set_rule(1, spec="P(None, 'data')") and state.set_rule(0, pattern="*['bias']")
    assert specs(state) == {UP: "P(None, 'data')", DOWN: "P(None, 'data')", BIAS: "P('model')"}
    assert state.remove_rule(1)
    assert specs(state) == {BIAS: "P('model')"}
    for _ in range(6):
        assert state.undo()
    assert not state.plan.rules and not state.past
    assert state.redo() and len(state.plan.rules) == 1


def test_a_rule_that_changes_nothing_is_kept_and_can_be_undone():
    state = explorer().state
    assert state.add_rule("*nothing*", "P('data')") and len(state.plan.rules) == 1
    assert state.undo() and not state.plan.rules


@pytest.mark.parametrize(
    ("pattern", "spec", "message"),
    [
        ("", "P()", "a rule needs a pattern"),
        ("*", "P(", "cannot read 'P\\('"),
        (
            "*",
            "P('data', 'model')",
            "params\\['up'\\]\\['bias'\\] .*2 entries for an array of rank 1.*\\(rule 1, '\\*'\\)",
        ),
        ("*", "P('pipe')", "no axis 'pipe'"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_a_word(pattern, spec, message):
    state = explorer().state
    assert not state.add_rule(pattern, spec)
    assert state.error is not None and state.error["place"] == "rule"
    with pytest.raises(sv.errors.ShardvizError, match=message):
        raise sv.errors.ShardvizError(state.error["message"])
    assert not state.plan.rules


def test_the_view_says_what_each_rule_catches_wins_and_leaves():
    shown = explorer([("*up*", P("model")), ("*kernel']", P()), (lambda path, array: False, None)])
    shown.state.set_spec(BIAS, P("data"))
    shown.tab = "rules"
    found = table(shown.rules["document"]["blocks"], "rules")["rows"]
    first, second, third = ([said(part["pieces"]) for part in row["detail"]] for row in found)
    assert first == [f"wins {BIAS} , {UP}", f"edited by hand: {BIAS}"]
    assert second == [f"wins {DOWN}", f"rule 1 wins {UP}"] and third == ["matches none"]
    assert rows(shown.rules, "rules")[1] == ["2", '"*kernel\']"', "P()", "2", "1"]
    assert [fields["filter"] for fields in shown.rules["fields"]] == ["*up*", "*kernel']", None]
    assert "test_rules.py" in rows(shown.rules, "rules")[2][1]
    assert said(table(shown.rules["document"]["blocks"], "rules-left")["pieces"]) == "No rule matches 1 array: x P()"
    selected = [part["sel"] for row in found for each in row["detail"] for part in each["pieces"] if "sel" in part]
    assert selected == [["value", name] for name in (BIAS, UP, BIAS, DOWN, UP)]


@pytest.mark.parametrize(("light", "width"), [(True, 1280), (False, 1280), (True, 420)])
def test_the_pane_is_read_and_used(open_page, light, width):
    page = open_page(explorer([("*up*", P("model")), ("*kernel']", P())]), light=light, width=width)
    page.go("rules")
    pane = page.at("panel-rules")
    assert f"rule 1 wins {UP}" in pane.inner_text()
    assert "No rule matches 1 array: x P()" in page.at("rules-left").inner_text()
    assert page.tab.evaluate(CONTRAST)["ratio"] >= 4.5
    assert page.tab.evaluate(UNREADABLE, pane.element_handle()) == []

    page.at("rule-new-filter").fill("x")
    page.enter("rule-new-spec", "P('data')")
    assert [r.filter for r in page.explorer.plan.rules] == ["*up*", "*kernel']", "x"]
    assert page.at("rules-left").inner_text() == "Every array has a rule."
    assert page.at("rule-new-filter").input_value() == ""
    page.click("rule-up-1")
    page.enter("rule-filter-2", "*x")
    page.enter("rule-spec-1", "P('pipe')")
    assert "no axis 'pipe'" in page.at("rule-error").inner_text()
    page.click("rule-remove-0")
    assert [r.filter for r in page.explorer.plan.rules] == ["*up*", "*x"]
    assert page.at("rule-error").count() == 0

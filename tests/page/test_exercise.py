"""The form of an exercise: what is chosen is the answer, errors are said in it, the result is the exercise's."""

import sys
import types

import ipywidgets as w
import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv

MESH = {"data": 2, "model": 4}
PLAN = sv.Plan(MESH, (P("data"), P(None, "model"), P("model")))
TURNED = sv.Plan(MESH, (P("data"), P("model"), P(None, "model")))


@pytest.fixture(scope="module")
def program():
    shapes = ((64, 512), (512, 2048), (2048, 512))
    return sv.trace(lambda x, w1, w2: jnp.tanh(x @ w1) @ w2, *(jax.ShapeDtypeStruct(s, "float32") for s in shapes))


def inside(widget, kind):
    """Every widget of a kind in a form, in order."""
    found = [widget] if isinstance(widget, kind) else []
    return found + [each for child in getattr(widget, "children", ()) for each in inside(child, kind)]


def press(form, name):
    (button,) = (b for b in inside(form, w.Button) if b.description == name)
    button.click()
    return inside(form, w.HTML)


def test_collectives_are_chosen_row_by_row(program):
    asked = sv.lessons.exercise(program, PLAN, ask="collectives")
    form = asked.widget()
    kind, over = inside(form, w.Dropdown)[:2]
    kind.value, over.value = "all-reduce", ("model",)
    (size, *_) = inside(form, w.Text)
    size.value = "many"
    *_, status, result = press(form, "Check")
    assert 'role="alert"' in status.value and "many" in status.value and asked.result is None
    size.value = "65.5 kB"
    *_, status, result = press(form, "Check")
    assert not status.value and asked.result.score == 1 and result.value == asked.result.html()
    before = len(inside(form, w.Text))
    press(form, "One more")
    assert len(inside(form, w.Text)) == before + 1
    unlabelled = [f for f in inside(form, (w.Dropdown, w.Text)) if not f.description]
    assert not unlabelled


def test_outputs_are_chosen_dimension_by_dimension(program):
    asked = sv.lessons.exercise(program, PLAN, ask="outputs")
    form = asked.widget()
    rows, columns = inside(form, w.Dropdown)
    assert [label for label, _ in rows.options] == ["whole", "data", "model", "data, model", "model, data"]
    assert rows.description == "result dim 0 (64) is sharded along"
    rows.value, columns.value = ("data",), ("model",)
    press(form, "Check")
    assert asked.result.score == 0.25
    columns.value = ()
    press(form, "Check")
    assert asked.result.score == 1 and asked.result.tries == 2


def test_a_number_has_nothing_to_choose():
    total = sv.trace(lambda x: x.sum(), jax.ShapeDtypeStruct((64, 8), "float32"))
    asked = sv.lessons.exercise(total, sv.Plan(MESH, P("data")), ask="outputs", level="propagated")
    press(asked.widget(), "Check")
    assert asked.result.score == 1


def test_the_cheaper_plan_is_a_choice(program):
    asked = sv.lessons.exercise(program, {"<b>one</b>": PLAN, "two": TURNED}, ask="cheaper")
    form = asked.widget()
    *_, status, _ = press(form, "Check")
    assert "choose a plan first" in status.value
    (choice,) = inside(form, w.RadioButtons)
    choice.value = "<b>one</b>"
    *_, result = press(form, "Check")
    assert asked.result.score == 1 and "<b>one</b>" not in result.value
    press(sv.lessons.exercise(program, PLAN, ask="outputs").widget(), "Show the answer")


def test_amounts_are_fields(program):
    asked = sv.lessons.exercise(program, PLAN, ask="memory")
    form = asked.widget()
    fields = {field.description: field for field in inside(form, w.Text)}
    assert list(fields) == ["x", "w1", "w2"]
    *_, status, _ = press(form, "Check")
    assert "fill in a field first" in status.value
    for megabyte in ("1048576", "1,048,576", "1.05 MB", "1 mb", "1MiB"):
        fields["w1"].value = megabyte
        press(form, "Check")
        assert [row.points for row in asked.result.rows] == [0, 1, 0], megabyte
    *_, result = press(form, "Show the answer")
    assert "65.5 kB" in result.value, "of x, which was not answered"
    timed = sv.lessons.exercise(program, PLAN, ask="seconds", target="tpu v5e:2x4")
    (field,) = inside(form := timed.widget(), w.Text)
    field.value = "1 hour"
    *_, status, _ = press(form, "Check")
    assert "expected an amount such as" in status.value
    field.value = "1 ms"
    press(form, "Check")
    assert timed.result.tries == 1


def test_a_puzzle_is_an_explorer_with_a_score(program):
    puzzle = sv.lessons.puzzle(program, sv.Plan(MESH), target="tpu v5e:2x4", par=PLAN, level="propagated")
    form = puzzle.widget()
    assert "open the explorer" in press(form, "Score this plan")[-2].value and puzzle.result is None, "no try is spent"
    press(form, "Open the explorer")
    press(form, "Score this plan")
    assert puzzle.result.stars == 0
    form.opened.state.set_spec("w1", P(None, "model"))
    form.opened.state.set_spec("w2", P("model"))
    form.opened.state.set_spec("x", P("data"))
    *_, result = press(form, "Score this plan")
    assert puzzle.result.stars == 3 and "★★★" in result.value and puzzle.result.tries == 2
    assert "P(None, " in press(form, "Show the solution")[-1].value and puzzle.answer(PLAN).stars == 3
    form.opened.close()
    given_up = sv.lessons.puzzle(program, sv.Plan(MESH), target="tpu v5e:2x4", par=PLAN, level="propagated")
    assert "P(None, " in press(given_up.widget(), "Show the solution")[-1].value and given_up.answer(PLAN).stars == 0


def test_a_form_tells_colab_that_its_own_widgets_are_not_enough(program, monkeypatch):
    """Colab loads a widget of others for an output that says so in its metadata."""
    data, metadata = sv.lessons.exercise(program, PLAN, ask="outputs").widget()._repr_mimebundle_()
    (kind,) = {*data} - {"text/plain"}
    assert metadata == {}
    allowed = []
    colab = types.SimpleNamespace(
        enable_custom_widget_manager=lambda: allowed.append("others"),
        _widgets=types.SimpleNamespace(_installed_url="URL"),
    )
    monkeypatch.setitem(sys.modules, "google.colab.output", colab)
    data, metadata = sv.lessons.exercise(program, PLAN, ask="outputs").widget()._repr_mimebundle_()
    assert allowed and metadata == {kind: {"colab": {"custom_widget_manager": {"url": "URL"}}}}

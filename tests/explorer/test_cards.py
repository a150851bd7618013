"""Plans side by side: no plan is lost by an edit, what was answered is not asked again, differences are fair."""

from dataclasses import replace

import jax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import ShardvizError, SpecError
from shardviz.explorer import background
from shardviz.explorer.apply import MOST_KEPT
from shardviz.explorer.cards import BASELINE, DRAFT, MOST_CARDS, Deck, equal_level
from shardviz.explorer.explorer import ExplorerState
from shardviz.paint.text import text_of
from shardviz.view.cards import deck_document
from shardviz.view.document import plain
from shardviz.view.most import costs_documents

W1, W2 = "params['w1']", "params['w2']"

steps = st.lists(
    st.tuples(st.just("edit"), st.integers(0, 3))
    | st.tuples(st.sampled_from(["undo", "redo", "pin"]), st.just(0))
    | st.tuples(st.sampled_from(["open", "delete", "move", "against"]), st.integers(0, 5)),
    max_size=25,
)
SPECS = [["data"], ["model"], ["data", "model"], []]


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@given(todo=steps)
def test_no_plan_of_a_card_is_lost_but_by_deleting_it(make_program, plan, todo):
    state = ExplorerState(make_program(), plan, level="propagated", debounce=60)
    for what, at in todo:
        before, deck = state.deck, state.deck
        card = deck.cards[at % len(deck.cards)]
        done = {
            "edit": lambda at=at: state.set_dim(W1, 0, SPECS[at]),
            "undo": state.undo,
            "redo": state.redo,
            "pin": state.pin,
            "open": lambda card=card: state.open_card(card.id),
            "delete": lambda card=card: state.delete_card(card.id),
            "move": lambda card=card, at=at: state.move_card(card.id, at),
            "against": lambda card=card: state.compare_with(card.id),
        }[what]()
        now = state.deck
        assert now.now.plan == state.plan and now.now.results.report is state.report, "one of them is the plan"
        assert now.card(BASELINE).plan == plan and now.card(now.against), "the baseline stays as it was given"
        assert len({c.id for c in now.cards}) == len({c.name for c in now.cards}) == len(now.cards)
        kept = {c.plan for c in now.cards}
        loose = {DRAFT, card.id if what == "delete" and done else DRAFT}
        gone = {c.plan for c in before.cards if c.id not in loose} - kept
        assert not gone, "what has a name keeps its plan"
        if what in ("edit", "open") and before.draft is not None and before.at != DRAFT:
            assert before.draft.plan in kept, "nor is a draft lost by an edit of another card"
    while state.past:
        assert state.undo()
    assert state.plan == plan


def test_a_plan_that_was_answered_is_not_asked_again(program, plan):
    state = ExplorerState(program, plan, debounce=60)
    program.jobs[0][1].answer(program.compiled(plan))
    first = state.report
    state.set_dim(W1, 0, ["data"])
    state.loop.hurry()
    other, job = program.jobs[1]
    job.answer(program.compiled(other))
    second, asked, propagated = state.report, len(program.jobs), program.propagations
    for go, report in ((state.undo, first), (state.redo, second), (lambda: state.open_card(BASELINE), first)):
        assert go() and state.report is report and not state.busy
    state.loop.hurry()
    assert (len(program.jobs), program.propagations) == (asked, propagated)


def test_answers_are_bounded(program, plan):
    state = ExplorerState(program, plan, level="propagated")
    plans = [plan.with_mesh({"data": 4, "model": 2, "z": n}) for n in range(1, MOST_KEPT + 2)]
    first, *_, last = [state.asking.results(each, state.now.machine) for each in plans]
    asked = program.propagations
    assert state.asking.results(plans[-1], state.now.machine).report is last.report and program.propagations == asked
    assert state.asking.results(plans[0], state.now.machine).report is not first.report, "the oldest is forgotten"


def test_cards_are_compared_at_a_level_that_both_have(program, plan):
    state = ExplorerState(program, plan, debounce=60)
    program.jobs[0][1].answer(program.compiled(plan))
    state.set_dim(W2, 0, [])
    assert equal_level(state.deck.now.results, state.deck.other.results) == "propagated"
    (table,) = deck_document(state.deck).blocks
    said = [[plain(cell) for cell in row.cells] for row in table.rows]
    assert said[1][3].endswith("at propagated") and said[0][3] == "", "and it says so"
    assert [row[-1] for row in said] == ["compiled", "propagated"]


def test_another_machine_is_for_every_card(program, plan, compilers):
    state = ExplorerState(program, plan, debounce=60)
    state.set_dim(W1, 0, ["data"])
    state.pin("mine")
    state.set_target("tpu v5e:2x4")
    assert {card.results.machine.text for card in state.deck.cards} == {"tpu v5e:2x4"}
    assert all(card.results.cost() is not None for card in state.deck.cards)
    state.undo()
    assert {card.results.machine.text for card in state.deck.cards} == {"cpu"} and state.deck.now.name == "mine"


def test_a_card_that_was_partitioned_for_another_machine_says_so():
    array = jax.ShapeDtypeStruct((512, 512), "float32")
    first = sv.Plan({"data": 2, "model": 4}, (P("data"), P(None, "model")))
    state = ExplorerState(sv.trace(lambda x, w: x @ w, array, array), first, level="partitioned")
    state.wait("partitioned", 60)
    state.set_dim("x", 0, [])
    state.wait("partitioned", 60)
    levels = lambda: [plain(row.cells[-1]) for row in deck_document(state.deck).blocks[0].rows]
    assert levels() == ["partitioned", "partitioned"]
    state.set_target("gpu h100:1x8")
    state.wait("partitioned", 60)
    assert levels() == ["partitioned for cpu", "partitioned"]
    state.open_card(BASELINE)
    state.wait("partitioned", 60)
    assert levels() == ["partitioned", "partitioned"]
    state.close()


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda s: s.delete_card(BASELINE), "the baseline cannot be deleted"),
        (lambda s: s.delete_card("nowhere"), "no card 'nowhere'; there are 'baseline'"),
        (lambda s: s.rename_card(BASELINE, "x" * 80), "1 to 60 characters"),
        (lambda s: s.open_card("gone"), "no card 'gone'"),
    ],
)
def test_what_cannot_be_done_with_a_card_is_said(program, plan, act, why):
    state = ExplorerState(program, plan, debounce=60)
    before = state.deck
    assert act(state) is False and why in state.error["message"] and state.error["place"] == "card"
    assert state.deck is before


def test_however_many_cards_are_kept_there_is_room_for_an_edit_of_each(program, plan):
    state = ExplorerState(program, plan, level="propagated", debounce=60)
    while state.pin():
        pass
    assert "delete one first" in state.error["message"] and len(state.deck.cards) == MOST_CARDS - 1
    for card in state.deck.cards:
        assert state.open_card(card.id)
        assert state.set_dim(W1, 0, ["data"]) and state.deck.at == DRAFT, state.error
        assert len(state.deck.cards) == MOST_CARDS == 24
        assert state.undo()
    assert state.set_dim(W1, 0, ["data"]) and state.open_card(BASELINE)
    assert not state.add_axis("z", 2), "the draft would be kept as one more"
    assert "delete one first" in state.error["message"] and len(state.deck.cards) == MOST_CARDS
    file_of_kept = Deck(tuple(replace(card, id=f"{n}") for n, card in enumerate(state.deck.cards)), at="0", against="0")
    with pytest.raises(ShardvizError, match="there are 24 cards"):
        file_of_kept.edited(plan, state.deck.now.results)


def test_a_draft_that_gets_a_name_is_kept():
    deck = Deck.of("A", "a").edited("B", "b").renamed(DRAFT, "mine")
    assert [(c.name, c.plan) for c in deck.cards] == [("baseline", "A"), ("mine", "B")] and deck.now.name == "mine"
    deck = deck.edited("C", "c")
    assert deck.card("card-1").plan == "B" and deck.at == DRAFT


@pytest.mark.parametrize(
    ("error", "said"), [(SpecError("the mesh has no axis 'x'"), "no axis 'x'"), (KeyError("x"), "internal error")]
)
def test_where_what_may_help_cannot_be_tried_that_is_said(make_program, plan, error, said, monkeypatch):
    state = ExplorerState(make_program(), plan, level="propagated", debounce=60)

    def fixer(*_):
        raise error
        yield

    monkeypatch.setattr(background, "fixes", fixer)
    state.try_fixes()
    assert not state.now.tried_fixes.busy
    (word,) = [p for p in costs_documents(state.deck, state.now.tried_fixes)[0].lead[0] if p.tone == "warn"]
    assert said in word.tip and "could not be tried" in word.text


def test_a_card_says_what_is_constrained_otherwise():
    def mlp(x, w1, w2):
        h = x @ w1
        return h @ w2

    args = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((32, 64), (64, 128), (128, 64))]
    state = ExplorerState(sv.trace(mlp, *args), sv.Plan({"data": 2, "model": 4}), level="propagated")
    said = lambda: text_of(deck_document(state.deck))
    assert state.pin("mine") and state.open_card("baseline") and "as the baseline" in said()
    assert state.constrain("h", P("data")) and state.pin("held")
    found = said()
    assert "h at test_cards.py:" in found and "constraint changed" in found
    assert state.set_spec("x", P("data")) and "x" in said() and "constraint changed" in said()

"""Programs that share arrays in the explorer of one of them: wishes, conflicts and cards are the set's own answers."""

import asyncio

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv
from shardviz.page.run import RunExplorer
from shardviz.paint import text
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.view.cards import deck_document
from tests.runs.test_together import TARGET, TENSOR, decoded, trained


@pytest.fixture
def both():
    return sv.together(train=trained(), decode=decoded(), target=TARGET, calls={"train": 100, "decode": 5000})


@pytest.fixture
def opened(both):
    explorer = sv.explore(both, level="propagated")
    yield explorer
    explorer.close()


def test_the_selected_array_has_its_conflict_of_the_set(both, opened):
    state = opened.explorer.state
    for conflict in both.record.conflicts:
        state.selected = conflict.names[0]
        assert state.now.sharing.conflict == conflict
        assert opened.explorer.sharing["of"] == conflict.names[0]
    state.selected = "x"
    assert state.now.sharing.conflict is None
    assert "of" not in opened.explorer.sharing


def test_a_card_has_each_program_as_the_set_has_it_under_the_card(both, opened):
    state = opened.explorer.state
    for name, spec in TENSOR.items():
        state.set_spec(f"params['{name}']", str(spec).replace("PartitionSpec", "P"))
    sharing = state.now.sharing
    assert sharing.programs is not None
    for card in state.deck.cards:
        under = both.with_plan("train", card.plan).under("train")
        assert sharing.costs[card.plan] == under.record.assignments[0].costs
    assert sharing.wishes == {}  # all programs now shard the arrays alike
    assert state.now.sharing.conflict is None
    assert "all calls" in text(deck_document(state.deck, sharing))


def test_the_strip_has_each_program_as_on_the_open_card(both, opened):
    state, own = opened.explorer.state, list(opened.strip.blocks)
    state.set_spec("params['w1']", "P('model')")
    costs = state.now.sharing.costs[state.plan]
    assert [block["label"].split(" × ")[1] for block in opened.strip.blocks] == [
        format_seconds(cost.seconds) for cost in costs
    ]
    times = [cost.seconds * calls for cost, calls in zip(costs, (100, 5000), strict=True)]
    assert [block["share"] for block in opened.strip.blocks] == pytest.approx(
        [100 * t / sum(times) for t in times], 1e-3
    )
    assert opened.strip.blocks != own and "'draft' of train" in opened.strip.note
    state.undo()
    assert opened.strip.blocks == own and not opened.strip.note


def test_another_machine_has_other_seconds(both, opened):
    state = opened.explorer.state
    before = state.now.sharing.costs[state.plan]
    assert state.set_target("tpu v6e:4x4")
    after = state.now.sharing.costs[state.plan]
    there = sv.together(train=trained(), decode=decoded(), target="tpu v6e:4x4").under("train")
    assert after == there.record.assignments[0].costs
    assert all(new.seconds < old.seconds for old, new in zip(before, after, strict=True))


def test_the_strip_follows_the_cards_machine(both, opened):
    """Its limit and each program's seconds; under every program's own plan for the card that it began with."""
    state, strip, own = opened.explorer.state, opened.strip, list(opened.strip.blocks)
    limit = strip.limit_words
    assert limit == f"{format_bytes(both.usable)} a device" and not strip.note
    assert state.set_target("tpu v6e:4x4")
    there = sv.together(train=trained(), decode=decoded(), target="tpu v6e:4x4")
    assert strip.limit_words == f"{format_bytes(there.usable)} a device" != limit
    assert strip.limit == pytest.approx(1) and "on tpu v6e:4x4" in strip.note
    before = [there.cost(side, side.plan).seconds for side in there.sides]
    alike = [cost.seconds for cost in state.now.sharing.costs[state.plan]]
    shown = [block["label"].split(" × ")[1] for block in strip.blocks]
    assert shown == [*map(format_seconds, alike if "as on the card" in strip.note else before)]
    state.undo()
    assert (strip.blocks, strip.limit_words, strip.note) == (own, limit, "")


def test_the_strip_of_a_run_follows_the_cards_machine():
    """Also of programs that share no array."""
    with sv.dry_run("tpu v5e:1x1", small=0) as run:
        mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
        on = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        jax.jit(lambda: jnp.zeros((1 << 14, 1 << 14)), out_shardings=on)()
        jax.jit(lambda: jnp.ones((1 << 14, 1 << 14)), out_shardings=on)()
    explorer = sv.explore(run, level="propagated")
    strip, state = explorer.strip, explorer.explorer.state
    limit, own = strip.limit_words, list(strip.blocks)
    assert state.set_target("tpu v6e:1x1")
    assert strip.limit_words == f"{format_bytes(sv.Machine.of('tpu v6e:1x1').usable_bytes)} a device" != limit
    assert strip.note == "every program on tpu v6e:1x1" and all(
        now["label"] != block["label"] for now, block in zip(strip.blocks, own, strict=True)
    )
    state.undo()
    assert (strip.limit_words, strip.blocks, strip.note) == (limit, own, "")
    explorer.close()


def test_in_a_notebook_a_change_of_machine_answers_at_once_and_the_strip_fills_in():
    with sv.dry_run("tpu v5e:1x1", small=0) as run:
        for fill in (jnp.zeros, jnp.ones):
            jax.jit(lambda fill=fill: fill((1 << 14, 1 << 14)) * 2)()

    async def notes_and_labels():
        explorer, seen = sv.explore(run, level="propagated"), []
        strip = explorer.strip
        strip.observe(lambda _: seen.append((strip.note, [b["label"] for b in strip.blocks])), "blocks")
        assert explorer.explorer.state.set_target("tpu v6e:1x1")
        seen.append((strip.note, [b["label"] for b in strip.blocks]))
        while "estimated" in strip.note:
            await asyncio.sleep(0.01)
        explorer.close()
        return seen, (strip.note, [b["label"] for b in strip.blocks])

    seen, last = asyncio.run(asyncio.wait_for(notes_and_labels(), 100))
    every, there = "every program on tpu v6e:1x1", sv.Machine.of("tpu v6e:1x1")
    assert seen[0] == (f"{every}; 0 of 2 are estimated", ["1 call"] * 2)
    assert f"{every}; 1 of 2 are estimated" in [note for note, _ in seen]
    assert last == (every, [f"1 × {format_seconds(step.record_on(there).seconds)}" for step in run])


def test_a_program_that_cannot_have_the_card_says_why(opened):
    state = opened.explorer.state
    assert state.resize_axis("data", 2)
    costs = {cost.program: cost for cost in state.now.sharing.costs[state.plan]}
    assert costs["train"].why_not == ""
    assert costs["decode"].why_not
    assert "decode: not possible" in text(deck_document(state.deck, state.now.sharing))


def test_a_card_goes_along_to_the_other_programs(both, opened):
    state = opened.explorer.state
    state.set_spec("params['w1']", "P('model')")
    opened.choose("decode")
    cards = {card.name: card.plan for card in opened.explorer.state.deck.cards}
    assert list(cards) == ["baseline", "as train: draft"]
    assert cards["as train: draft"] == both.with_plan("train", state.plan).under("train")["decode"].plan
    opened.choose("train")
    state.set_spec("params['w1']", "P('data')")
    opened.choose("decode")
    assert [card.name for card in opened.explorer.state.deck.cards] == ["baseline", "as train: draft"]


def test_a_run_whose_programs_share_an_array_has_their_costs():
    double, total = jax.jit(lambda w: w * 2), jax.jit(lambda w: (w @ w).sum())
    with sv.dry_run(small=0) as run:
        w = jax.jit(lambda: jnp.zeros((512, 512)))()
        double(w)
        total(w)
    explorer = sv.explore(run, level="propagated")
    assert isinstance(explorer, RunExplorer)
    sharing = explorer.explorer.state.now.sharing
    assert [cost.program for cost in next(iter(sharing.costs.values()))] == [side.name for side in run.together().sides]
    explorer.close()

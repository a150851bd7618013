"""The verdict of a plan: its numbers are the cost's own, and what bounds the step is said with its line."""

import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.diagnose.findings import brief
from shardviz.explorer.explorer import ExplorerState
from shardviz.records.amounts import format_bytes, format_number, format_seconds
from shardviz.view.cards import difference_pieces
from shardviz.view.document import Table, plain
from shardviz.view.most import costs_documents
from shardviz.view.verdict import verdict_document


def judged(example, target="tpu v5e:2x4"):
    """The state on an example's plan, and what the verdict says, by name: the amount, and its label."""
    state = ExplorerState(example.program, example.plan, level="propagated", target=target, debounce=60)
    blocks = verdict_document(state.deck.now.results).blocks
    return state, {block.name: (plain(block.pieces), block.label) for block in blocks}


@pytest.fixture(scope="module")
def example():
    return sv.gallery.mlp(mesh="data=4,model=2")


def test_the_numbers_are_the_costs(example):
    state, said = judged(example)
    cost = state.cost
    assert said["top-step"][0] == format_seconds(cost.seconds)
    assert format_seconds(cost.step.high) in said["top-step"][1]
    amount, _ = said["top-memory"]
    assert amount == f"{cost.needs.text} of {format_bytes(cost.needs.usable)}"
    assert said["top-rate"][0] == format_number(cost.tokens_per_s_per_chip)


def test_what_takes_longest_bounds_the_step(example):
    state, said = judged(example)
    step, words = state.cost.step, said["verdict"][0]
    times = {"Compute-bound": step.compute, "HBM-bound": step.memory, "Communication-bound": step.communication}
    assert words.startswith(max(times, key=times.__getitem__))


def test_communication_is_said_with_its_line_and_axes():
    small = sv.gallery.mlp(mesh="data=4,model=2", batch=64)
    state, said = judged(small)
    cost = state.cost
    assert cost.bound == "communication"
    words = said["verdict"][0]
    assert words.startswith("Communication-bound:")
    lines = {c.source.short for c in cost.partitioned if c.source is not None}
    assert any(line in words for line in lines)


def test_what_does_not_fit_says_so_first():
    large = sv.gallery.mlp((65_536, 262_144, 65_536, 256), mesh="data=4,model=2")
    state, said = judged(large)
    needs = state.cost.needs
    assert needs.total > needs.usable
    assert said["verdict"][0].startswith("Does not fit.")
    assert said["top-memory"][1] == f"{format_bytes(needs.total - needs.usable)} too much"
    assert "bound:" in said["verdict"][0]
    assert state.add_axis("seq", 4)
    words = plain(verdict_document(state.deck.now.results).blocks[-1].pieces)
    assert words.startswith("Does not fit.") and words.endswith("seq is of no use: 32 chips do what 8 would.")


def test_without_a_machine_there_are_no_times(example):
    _, said = judged(example, target="cpu")
    assert set(said) == {"verdict"}
    assert said["verdict"][0].startswith("choose a machine to see times")


def test_an_axis_of_no_use_says_so_first_and_is_no_progress(example):
    """Four times the chips for the same step."""
    state, _ = judged(example)
    assert state.add_axis("seq", 4)
    words = plain(verdict_document(state.deck.now.results).blocks[-1].pieces)
    assert words == "seq is of no use: 32 chips do what 8 would."
    (piece, *_) = difference_pieces(state.deck.now.results, state.deck.card("baseline"))
    assert piece.tone == "bad" and "chip-seconds" in piece.text
    (finding,) = [f for f in state.deck.now.results.findings if f.rule == "idle-axis"]
    (rows,) = [b.rows for b in costs_documents(state.deck, state.now.tried_fixes)[0].blocks if isinstance(b, Table)]
    (row,) = [row for row in rows if any(brief(finding) in plain(cell) for cell in row.cells)]
    assert plain(row.cells[0]) == format_seconds(finding.numbers["seconds"])
    chip = state.cost.machine.chip
    busy = state.report.cost.dot_flops * chip.devices_per_chip / chip.flops(state.cost.dtype)
    assert finding.numbers["seconds"] == pytest.approx(busy * 3 / 4)


@pytest.mark.parametrize("target", ["tpu v5e:2x4", "cpu"])
def test_what_more_chips_take_less_of_each_is_no_progress_unless_all_take_less(target):
    """Four times the chips: a shorter step, of more chip-seconds; without times, all chips send more."""
    example = sv.gallery.mlp(mesh="data=4,model=2", batch=65_536)
    state, _ = judged(example, target)
    before = state.deck.now.results
    assert state.add_axis("seq", 4)
    assert state.set_plan(state.plan.with_spec(dict.fromkeys("xy", P(("data", "seq")))))
    after, card = state.deck.now.results, state.deck.card("baseline")
    if target != "cpu":
        seconds = [results.cost().seconds for results in (before, after)]
        assert seconds[1] < seconds[0] < 4 * seconds[1]
        assert f"{4 * seconds[1] / seconds[0] - 1:+.0%}" in plain([*difference_pieces(after, card)]).replace(" %", "%")
    assert [piece.tone for piece in difference_pieces(after, card) if piece.tone] == ["bad"]


@pytest.mark.parametrize("target", ["tpu v5e:2x4", "gpu h100:1x8"])
def test_a_number_lies_in_its_band_or_says_how_measured_steps_lay(example, target):
    state, said = judged(example, target)
    step, off, label = state.cost.step, state.cost.step.accuracy, said["top-step"][1]
    if off.low <= 1 <= off.high:
        assert format_seconds(step.high) in label and "usually" not in label
    else:
        assert label == f"a step, usually {off.low:.2g} – {off.high:.2g} times this"

"""Puzzles: par is what the compiler says of its plan, stars are by seconds and bytes, hints say where it differs."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import ShardvizError
from shardviz.records.amounts import format_bytes

MESH = sv.mesh(data=4, model=2)
TARGET = "tpu v5e:2x4"


def step(w1, w2, x):
    loss = lambda w: jnp.mean((jnp.tanh(x @ w[0]) @ w[1]) ** 2)
    return [w - 0.1 * g for w, g in zip((w1, w2), jax.grad(loss)((w1, w2)), strict=True)]


@pytest.fixture(scope="module")
def program():
    array = lambda *shape: jax.ShapeDtypeStruct(shape, "bfloat16")
    return sv.trace(step, array(4096, 16384), array(16384, 4096), array(8192, 4096), donate_argnums=(0, 1))


BOTH = sv.Plan(MESH, (P("data", "model"), P("model", "data"), P("data")))
ROWS = sv.Plan(MESH, (P(), P(), P("data")))
NOTHING = sv.Plan(MESH, (P(), P(), P()))


@pytest.fixture
def puzzle(program):
    ideas = {"Only the batch is sharded.": ROWS, "Nothing moves.": lambda report: not report.collectives}
    return sv.lessons.puzzle(program, MESH, target=TARGET, par=BOTH, level="partitioned", title="an MLP", ideas=ideas)


def test_par_is_what_the_compiler_says_of_its_plan(program, puzzle):
    cost = sv.cost(program.partition(BOTH), TARGET)
    assert (puzzle.costs["par"].seconds, puzzle.costs["par"].needs.total) == (cost.seconds, cost.needs.total)
    assert "par" in puzzle.text() and "XLA's partitioner (partitioned)" in puzzle.text()
    assert all(not any(spec.dims) for spec in program.bind(puzzle.start).in_specs.values())


def test_stars_are_by_seconds_and_bytes(program, puzzle):
    attempts = [puzzle.answer(plan) for plan in (NOTHING, ROWS, BOTH)]
    assert [a.stars for a in attempts] == [0, 1, 3] and [a.tries for a in attempts] == [1, 2, 3]
    assert tuple(row.times for row in attempts[1].rows) == (
        attempts[1].cost.seconds / puzzle.costs["par"].seconds,
        attempts[1].cost.needs.total / puzzle.costs["par"].needs.total,
    )
    assert not attempts[2].under_par and puzzle.result is attempts[2]
    easy = sv.lessons.puzzle(program, MESH, target=TARGET, par=ROWS, level="partitioned")
    assert (attempt := easy.answer(BOTH)).under_par and "under par" in attempt.text()
    assert sv.lessons.scores(puzzle, easy).score == 1
    assert sv.lessons.scores(puzzle, sv.lessons.puzzle(program, MESH, target=TARGET, par=BOTH)).score == 0.5


def test_what_does_not_fit_has_no_star():
    example = sv.gallery.llama("8b", mesh={"data": 8, "model": 1})
    whole = sv.Plan({"data": 8, "model": 1}, (P(), P(), P("data")))
    puzzle = sv.lessons.puzzle(example, whole, target="tpu v5e:2x4", par=example.plan, level="propagated")
    assert (attempt := puzzle.answer(whole)).stars == 0 and "does not fit" in attempt.text()


def test_hints_are_about_what_par_does_otherwise(program, puzzle):
    attempt = puzzle.answer(ROWS)
    of_par = {(f.rule, f.value) for f in program.partition(BOTH).findings_on(TARGET)}
    own = program.partition(ROWS).findings_on(TARGET)
    assert attempt.hints == tuple(f for f in own if (f.rule, f.value) not in of_par) != ()
    assert "'model'" in attempt.text()
    whole = 2 * 4096 * 16384  # bytes of w1 in bfloat16; par shards it along both axes
    assert f"w1 {format_bytes(whole)}, {format_bytes(whole / 8)} for par." in " ".join(attempt.excess)
    assert (par := puzzle.answer(BOTH)).hints == () and par.excess == ()


def test_a_finding_that_par_has_too_is_no_hint():
    """The large model keeps more than its arguments take, whatever the specs of its feed-forward weights."""
    example = sv.gallery.llama("70b")
    whole = example.plan.with_spec("params['layers']['w1']", P(None, None, "model"))
    puzzle = sv.lessons.puzzle(example, whole, target="tpu v5p:4x4x4", par=example.plan, level="propagated")
    attempt = puzzle.answer(whole)
    assert "kept-dominates" in {f.rule for f in attempt.cost.report.findings_on("tpu v5p:4x4x4")}
    assert "kept-dominates" not in {f.rule for f in attempt.hints}
    assert any("params['layers']['w1']" in sentence for sentence in attempt.excess)


def test_a_common_idea_is_answered(puzzle):
    assert puzzle.answer(ROWS).ideas == ("Only the batch is sharded.",)
    assert puzzle.answer(NOTHING).ideas == ("Nothing moves.",)
    assert puzzle.answer(BOTH).ideas == ()


def test_the_solution_opens_after_three_wrong_tries_or_on_request(puzzle):
    for tries in range(3):
        with pytest.raises(ShardvizError, match=f"{tries} of 3 wrong tries so far"):
            puzzle.reveal()
        puzzle.answer(ROWS)
    assert puzzle.reveal().plan == BOTH and "P('data', 'model')" in puzzle.reveal().text()
    assert puzzle.answer(BOTH).stars == 0


def test_who_reached_par_sees_its_plan_and_keeps_the_stars(puzzle):
    puzzle.answer(BOTH)
    assert puzzle.reveal().plan == BOTH and puzzle.answer(BOTH).stars == puzzle.result.stars == 3


def test_what_cannot_be_asked_says_why(program, puzzle):
    with pytest.raises(ShardvizError, match="16 devices, expected 8 as on tpu v5e:2x4"):
        puzzle.answer(sv.Plan({"data": 16}, (P("data"), P(), P())))
    with pytest.raises(ShardvizError, match=r"expected an sv\.Plan, such as search\.best\.plan"):
        sv.lessons.puzzle(program, MESH, target=TARGET, par=0.1)
    with pytest.raises(ShardvizError, match="level is 'propagated'"):
        sv.lessons.puzzle(program, MESH, target=TARGET, par=BOTH, level="guessed")
    with pytest.raises(ShardvizError, match="have no links and no speed"):
        sv.lessons.puzzle(program, MESH, target="cpu", par=BOTH, level="propagated").answer(ROWS)

"""Exercises: the right answer gets all points, what is missed is explained, and what is said is checked."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import ShardvizError, SpecError
from shardviz.judge.comparison import compare_reports
from shardviz.lessons import questions

MESH = {"data": 2, "model": 4}


def mlp(x, w1, w2):
    return jnp.tanh(x @ w1) @ w2


@pytest.fixture(scope="module")
def program():
    return sv.trace(mlp, *(jax.ShapeDtypeStruct(s, "float32") for s in ((64, 512), (512, 2048), (2048, 512))))


MEGATRON = sv.Plan(MESH, (P("data"), P(None, "model"), P("model")))
TURNED = sv.Plan(MESH, (P("data"), P("model"), P(None, "model")))


def test_collectives_are_named_by_kind_axes_and_bytes(program):
    asked = sv.lessons.exercise(program, MEGATRON, ask="collectives", title="an MLP")
    assert "w1" in asked.text() and "exercise.answer([" in asked.text() and asked.result is None
    right = 64 // 2 * 512 * 4  # float32 rows of one part of data: partial sums over model
    assert asked.answer([("all-reduce", "model", right)]).score == 1
    assert asked.answer([("all-reduce", ("model",), "65 kB")]).score == 1  # within a tenth
    assert asked.answer([("all-reduce", "model")]).score == 1  # bytes need not be said
    assert asked.answer([("all-reduce", "model", 2 * right)]).score == 0.5
    wrong = asked.answer([("all-gather", "data")])
    assert [row.verdict for row in wrong.rows] == ["missed", "does not exist"] and wrong.score == 0
    assert "all-reduce" not in wrong.text() and "1 collective is missing" in wrong.text()  # a hint first
    shown = asked.reveal(give_up=True)
    assert "sums over dimension 1" in shown.text()  # why it is there, in program.why's words
    assert shown.rows == wrong.rows and shown.tries == wrong.tries == 5
    retyped = asked.answer([("all-reduce", "model", right)])
    assert retyped.score == 0 and "The right answer was shown before" in retyped.text()
    assert asked.tries == 6 and asked.result.tries == 6


def test_a_wrong_amount_is_shown_with_its_factor_once_the_right_one_is(program):
    asked = sv.lessons.exercise(program, MEGATRON, ask="memory")
    told = asked.answer({"x": 2 * 64 // 2 * 512 * 4, "w1": 1e6, "w2": 512 * 2048 // 4 * 4})
    assert "too large" in told.text() and " x" not in told.text().split("too large")[1].splitlines()[0]
    assert "too large: 2 x" in asked.reveal(give_up=True).text()
    sent = sv.lessons.exercise(program, MEGATRON, ask="collectives")
    sent.answer([("all-reduce", "model", 64 // 2 * 512)])
    assert "too few bytes: 0.25 x" in sent.reveal(give_up=True).text()


def test_a_result_is_locked_until_there_is_an_answer(program, monkeypatch):
    asked_for = sv.lessons.exercise(program, MEGATRON, ask="collectives", title="an MLP")
    assert asked_for.then(3) == 3  # nobody watches: a saved notebook has its results
    monkeypatch.setattr(questions, "is_watched", lambda: True)
    locked = asked_for.then(3)
    assert "Locked" in locked.text() and "an MLP" in locked.text()
    asked_for.answer([])
    assert asked_for.then(3) == 3


def test_the_answer_is_shown_after_the_third_wrong_try(program):
    asked = sv.lessons.exercise(program, MEGATRON, ask="collectives")
    some = [("all-reduce", "model"), ("all-gather", "data")]
    results = [asked.answer(some) for _ in range(3)]
    assert [(each.shown, each.score) for each in results] == [(False, 0.5), (False, 0.5), (True, 0.5)]
    assert asked.answer(some[:1]).score == 0


def test_nothing_is_an_answer_too(program):
    alone = sv.Plan({"data": 8}, (P("data"), P(), P()))
    asked = sv.lessons.exercise(program, alone, ask="collectives")
    assert asked.answer([]).score == 1
    assert asked.answer([("all-gather", "data")]).score == 0
    assert sv.lessons.exercise(program, MEGATRON, ask="collectives").answer([]).score == 0


def test_outputs_are_specs(program):
    asked = sv.lessons.exercise(program, MEGATRON, ask="outputs")
    assert "a tenth" not in asked.text(), "of amounts alone, a tenth more or less is right"
    assert asked.answer(P("data")).score == 1
    assert asked.answer({"result": P("data", None)}).score == 1
    partly = asked.answer(P("data", "model"))
    assert partly.score == 0.25 and partly.rows[0].verdict == "1 of 2 dimensions are right"
    assert "P('data')" not in partly.text() and "An axis follows its dimension" in partly.text()
    shown = asked.reveal(give_up=True).text()
    assert "because of x P('data')" in shown and "not sharded along model" in shown
    with pytest.raises(SpecError, match="'result'"):
        asked.answer(P("data", "model", None))
    with pytest.raises(ShardvizError, match="how every output is sharded"):
        sv.lessons.exercise(program, sv.Plan(MESH, out_specs=P("data")), ask="outputs")


def test_the_cheaper_plan_is_that_of_the_report(program):
    names = ("column then row", "row then column")
    asked = sv.lessons.exercise(program, dict(zip(names, (MEGATRON, TURNED), strict=True)), ask="cheaper")
    moved = [sum(c.total_bytes for c in program.partition(plan).collectives) for plan in (MEGATRON, TURNED)]
    assert moved[0] < moved[1]
    assert asked.answer(names[0]).score == 1 and asked.answer(names[1]).score == 0
    assert "From column then row" not in asked.result.text()
    assert compare_reports(asked.reports).collectives
    assert "From column then row" in asked.reveal(give_up=True).text()
    assert sv.lessons.exercise(program, {"A": MEGATRON, "B": MEGATRON}, ask="cheaper").answer("equal").score == 1
    # on a machine by the step's time, which sv.cost says
    timed = sv.lessons.exercise(
        program, {"A": MEGATRON, "B": TURNED}, ask="cheaper", target="tpu v5e:2x4", level="propagated"
    )
    times = [sv.cost(program.propagate(plan), "tpu v5e:2x4").seconds for plan in (MEGATRON, TURNED)]
    assert timed.answer("A" if times[0] < times[1] else "B").score == 1


def test_memory_is_what_jax_says_of_shards(program):
    mesh = jax.sharding.AbstractMesh((2, 4), ("data", "model"))
    right = {}
    for argument, spec in zip(program.arguments, (P("data"), P(None, "model"), P("model")), strict=True):
        shard = jax.sharding.NamedSharding(mesh, spec).shard_shape(argument.shape)
        right[argument.name] = 4 * shard[0] * shard[1]
    asked = sv.lessons.exercise(
        program, MEGATRON, ask="memory", ideas={"One axis is forgotten.": {"w1": 512 * 2048 * 4}}
    )
    assert asked.answer(right).score == 1 and asked.result.ideas == ()
    wrong = asked.answer({"w1": "4.2 MB", "w2": right["w2"]})
    assert wrong.score == pytest.approx(1 / 3) and wrong.ideas == ("One axis is forgotten.",)
    assert "too large" in wrong.text() and "One axis is forgotten." in wrong.text()
    assert "65.5 kB" not in wrong.text() and "65.5 kB" in asked.reveal(give_up=True).text()  # of x
    with pytest.raises(ShardvizError, match="there are 'x', 'w1', 'w2', 'kept'"):
        asked.answer({"w3": 1})
    nothing = asked.answer(right | {"kept": 0})
    assert [row.points for row in nothing.rows] == [1, 1, 1], "nothing is kept, and that is no mistake"


def test_what_the_forward_pass_keeps_may_be_left_out():
    example = sv.gallery.mlp()
    asked = sv.lessons.exercise(example, ask="memory", level="propagated")
    report = example.program.propagate(example.plan)
    right = {}
    for value in report.arguments:
        name = value.name.split("[")[0]
        right[name] = right.get(name, 0) + value.bytes_per_device
    assert report.residual_bytes and asked.answer(right).score == 1
    assert "left out" in asked.result.text()
    assert asked.answer(right | {"kept": 2 * report.residual_bytes}).score < 1


def test_seconds_are_those_of_the_collectives(program):
    asked = sv.lessons.exercise(program, MEGATRON, ask="seconds", target="tpu v5e:2x4")
    assert "a tenth" in asked.text()
    report = program.partition(MEGATRON)
    right = sum(
        c.count * sv.collective_seconds(c.kind, c.operand_bytes, c.axes, MESH, "tpu v5e:2x4").seconds
        for c in report.collectives
    )
    assert asked.answer(right).score == 1
    assert asked.answer("1 s").score == 0 and "hops" not in asked.result.text()
    assert "hops" in asked.reveal(give_up=True).text()  # the formula
    with pytest.raises(ShardvizError, match="needs a target"):
        sv.lessons.exercise(program, MEGATRON, ask="seconds")


def test_common_ideas_are_answered(program):
    ideas = {"Gathered?": [("all-gather", "model")], "Nothing moves?": []}
    asked = sv.lessons.exercise(program, MEGATRON, ask="collectives", ideas=ideas)
    assert asked.answer([("all-gather", "model", "1 MB")]).ideas == ("Gathered?",)
    assert asked.answer([]).ideas == ("Nothing moves?",)
    assert asked.answer([("all-reduce", "model")]).ideas == ()
    with pytest.raises(ShardvizError, match="no collective"):
        sv.lessons.exercise(program, MEGATRON, ask="collectives", ideas={"?": [("gather", "model")]})


def test_a_result_can_be_graded(program):
    asked = sv.lessons.exercise(program, MEGATRON, ask="collectives")
    with pytest.raises(ShardvizError, match=r"0 of 3 wrong tries so far.* no points"):
        asked.reveal()
    assert asked.reveal(give_up=True).score == 0
    other = sv.lessons.exercise(program, MEGATRON, ask="outputs", title="what comes out")
    found = other.answer(P("data"))
    assert found.score == 1 and found.rows[0].right == "P('data')" and found.tries == 1 and other.result is found
    both = sv.lessons.scores(asked, other)
    assert both.score == 0.5 and "what comes out" in both.text() and "50%" in both.text()
    assert "not answered" in sv.lessons.scores(sv.lessons.exercise(program, MEGATRON, ask="outputs")).text()


def test_small_collectives_may_be_left_out():
    example = sv.gallery.llama("8b")
    asked = sv.lessons.exercise(example, ask="collectives", level="propagated")
    report = example.program.propagate(example.plan)
    sizes = {}
    for c in report.collectives:
        sizes[c.kind, tuple(sorted(c.axes))] = sizes.get((c.kind, tuple(sorted(c.axes))), 0) + c.total_bytes
    large = [(kind, axes, size) for (kind, axes), size in sizes.items() if size >= 0.01 * sum(sizes.values())]
    assert len(large) < len(sizes)
    assert asked.answer(large).score == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("all-reduce", "expected a list"),
        ([("all-reduce",)], r"expected \(kind, axes\)"),
        ([("allreduce", "model")], "no collective 'allreduce'; there are all-gather"),
        ([("all-reduce", "modle")], "the mesh has no axis 'modle'; it has data=2, model=4"),
        ([("all-reduce", "model", "many")], "bytes='many'"),
        ([("all-reduce", "model"), ("all-reduce", "model", 3)], "appears twice"),
    ],
)
def test_what_cannot_be_read_says_why(program, given, says):
    with pytest.raises(ShardvizError, match=says):
        sv.lessons.exercise(program, MEGATRON, ask="collectives").answer(given)


def test_what_cannot_be_asked_says_why(program):
    with pytest.raises(ShardvizError, match="ask is 'outputs', 'collectives', 'cheaper', 'memory', 'seconds'"):
        sv.lessons.exercise(program, MEGATRON, ask="everything")
    plans = {"A": MEGATRON, "B": TURNED}
    for ask, plan in (("cheaper", MEGATRON), ("cheaper", {"A": MEGATRON, "equal": TURNED}), ("outputs", plans)):
        with pytest.raises(ShardvizError, match=r"takes two plans, name → sv\.Plan"):
            sv.lessons.exercise(program, plan, ask=ask)
    with pytest.raises(ShardvizError, match="expected a program"):
        sv.lessons.exercise(mlp, MEGATRON, ask="outputs")


specs = st.permutations(["data", "model", None]).map(lambda axes: P(*axes[:2]))


@settings(max_examples=12)
@given(st.tuples(specs, specs, specs))
def test_what_the_report_says_is_worth_all_points(program, ins):
    plan = sv.Plan(MESH, ins)
    report = program.propagate(plan)
    outputs = {v.name: v.spec for v in report.outputs}
    assert sv.lessons.exercise(program, plan, ask="outputs", level="propagated").answer(outputs).score == 1
    sizes = {}
    for c in report.collectives:
        sizes[c.kind, c.axes] = sizes.get((c.kind, c.axes), 0) + c.total_bytes
    said = [(kind, axes, size) for (kind, axes), size in sizes.items()]
    result = sv.lessons.exercise(program, plan, ask="collectives", level="propagated").answer(said)
    assert result.score == 1 and sum(row.points for row in result.rows) == sum(row.of for row in result.rows)

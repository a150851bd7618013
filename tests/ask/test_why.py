"""Why a value is cut as it is: every cause is checked by another trace, every chain against the operations' rules."""

import asyncio
import functools
import itertools
import json
import re
import runpy

import hypothesis
import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import gallery
from shardviz.errors import ShardvizError
from shardviz.explorer.explorer import ExplorerState
from shardviz.notation import Spec
from shardviz.notation.spec import axis_name
from shardviz.propagate import propagate as shardy
from shardviz.records.why import NEEDS, Effect, outcome
from shardviz.view.document import Paragraph, Section, plain
from shardviz.view.subjects import document
from tests.ask import random_programs as random
from tests.programs import decode, vit

SCOPE = re.compile(r"(?:^|/)(s\d+)(?:/|$)")


def traced(recipe):
    return sv.trace(recipe.fn(), recipe.arguments_of()), sv.Plan(**recipe.plan())


def steps(report):
    """Step of a recipe and operation → the last such value that it makes, of those that are cut."""
    return {(m[1], v.op): v for v in report.intermediates if (m := SCOPE.search(v.name_stack))}


def dimension(value, axis):
    found = [d for d, axes in enumerate(value.spec.dims) if axis in map(axis_name, axes)] if value.spec else []
    return found[0] if found else None


def recipe_source(recipe, program, source):
    """A source in the recipe's words: an argument, the output, or the steps whose constraints are on one line."""
    if source.role != "constraint":
        return [(source.role, source.name)]
    said = tuple(axes[0] if axes else None for axes in source.spec.dims)
    return [("constraint", f"s{i}") for i, s in enumerate(recipe.steps) if s.kind == "constraint" and s.cut == said]


def gone(recipe, program, sources):
    for source in sources:
        for role, name in recipe_source(recipe, program, source):
            recipe = recipe.without(role, name, source.dimension, source.axis)
    return recipe


def asked_again(recipe, step, axis):
    """Where an axis is on a step's value in a program that is made anew."""
    program, plan = traced(recipe)
    return {n: dimension(v, axis) for n, v in steps(program.propagate(plan)).items()}.get(step)


def consistent(hop):
    """Whether a rule has one letter for both dimensions of a step."""
    ins, outs = hop.rule.split("->")
    arrays = [re.findall(r"[^,\s\[\]]+", m) for m in re.findall(r"\[([^\]]*)\]", ins + outs)]
    letters = lambda end: [set(a[end.dimension]) for a in arrays if len(a) == len(end.shape) and end.dimension < len(a)]
    return any(one & other for one in letters(hop.before) for other in letters(hop.after))


def check_chain(answer, value, axis):
    hops = answer.chain
    first = answer.causes[0].source
    if first.role in ("argument", "output"):
        assert hops[0].before.name == first.name
    assert hops[0].before.dimension == first.dimension
    assert (hops[-1].after.dimension, hops[-1].after.spec.dims) == (answer.dimension, value.spec.dims)
    for before, after in itertools.pairwise(hops):
        assert before.after == after.before
    for hop in hops:
        for end in (hop.before, hop.after):
            assert axis in map(axis_name, end.spec.dims[end.dimension])
        assert not hop.rule or consistent(hop)


@pytest.fixture
def unrehearsed(monkeypatch):
    """Shardy is not tried in another process first: these programs are small, and many."""
    monkeypatch.setattr(shardy, "passed_elsewhere", lambda *_: None)


@pytest.mark.long
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(recipe=random.recipes())
@hypothesis.example(recipe=random.Recipe(1, (random.Step("scan", (0, 0)),), (("a", None),), (None, "a")))
def test_causes_of_random_programs(unrehearsed, recipe):
    """Taking all causes away removes the axis, a needed one does so alone, and one of several is enough by itself."""
    program, plan = traced(recipe)
    report = program.propagate(plan)
    found = list(steps(report).items())
    for step, value in found[-1:]:
        for axis in random.MESH:
            at = dimension(value, axis)
            why = program.why(plan, value, axis=axis)
            (answer,) = why.axes
            assert answer.dimension == at
            if at is None:
                assert not why.causes and not why.chain
                continue
            sources = [c.source for c in why.causes]
            assert sources, "no cause is missed"
            assert asked_again(gone(recipe, program, sources), step, axis) != at
            for cause in why.causes:
                others = [s for s in sources if s is not cause.source]
                if cause.verdict == "needed":
                    assert asked_again(gone(recipe, program, [cause.source]), step, axis) != at
                elif cause.verdict == "one of several":
                    assert asked_again(gone(recipe, program, others), step, axis) == at
                else:
                    assert cause.verdict == "only together"
            if answer.chain:
                check_chain(answer, value, axis)
            else:
                assert sources[0].role == "constraint"


# A program by hand.


def mlp(x, w1, w2):
    h = jax.nn.relu(x @ w1)
    y = h @ w2
    return y


MESH = {"data": 2, "model": 4}
ARGS = tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in ((32, 64), (64, 128), (128, 64)))
PLAN = sv.Plan(MESH, (P("data"), P(None, "model"), P("model")))


@pytest.fixture(scope="module")
def program():
    return sv.trace(mlp, *ARGS)


def test_one_of_two_factors_is_enough(program):
    why = program.why(PLAN, "h", axis="model")
    assert [(c.source.name, c.verdict, c.enough) for c in why.causes] == [
        ("w1", "one of several", True),
        ("w2", "one of several", True),
    ]
    assert [(h.op, h.rule, h.after.name) for h in why.chain] == [
        ("dot_general", "([i, k], [k, j])->([i, j])", "dot_general"),
        ("call", "", "dot_general"),
        ("max", "([i, j], [i, j])->([i, j])", "h"),
    ]
    assert why.chain[0].words == "dimension 1 of the second operand is dimension 1 of the result"
    text = why.text()
    words = " ".join(text.split())
    assert "h is sharded along model because of w1 P(None, 'model') or w2 P('model'); either is enough" in words
    assert "without both, h is not sharded along model" in words
    assert json.loads(why.to_json())["axes"][0]["causes"][0]["source"]["name"] == "w1"


def test_a_needed_cause_and_all_axes(program):
    why = program.why(PLAN, "h")
    assert [a.axis for a in why.axes] == ["data", "model"]
    (cause,) = why.axis("data").causes
    assert (cause.source.name, cause.verdict, cause.enough) == ("x", "needed", True)
    with pytest.raises(ShardvizError, match="'depth': this answer has no such axis; it has 'data', 'model'"):
        why.axis("depth")


def test_what_would_change(program):
    """Without `model` in `w1`, `h` stays cut by `w2`, and `w1` is whole on every device."""
    why = program.why(PLAN, "h", axis="model")
    changed = why.without(why.causes[0])
    arguments = {v.name: v for v in changed.values if v.role == "argument"}
    assert arguments["w1"].bytes == 64 * 128 * 4 * 3 // 4
    other = program.propagate(PLAN.with_spec("w1", P()))
    assert changed.amount("operand bytes").after == sum(c.total_bytes for c in other.collectives)
    assert not sv.compare(other, program._asking(PLAN).changed((why.causes[0].source,))).specs
    timed = program.why(PLAN, "h", axis="model", target="tpu v5e:2x4")
    step = timed.without(timed.causes[0]).amount("step")
    both = [sv.cost(report, "tpu v5e:2x4").seconds for report in (program.propagate(PLAN), other)]
    assert [step.before, step.after] == both


def test_a_missing_axis_that_nothing_has(program):
    plan = PLAN.with_spec({"w1": P(), "w2": P()})
    why = program.why(plan, "h", axis="model")
    (answer,) = why.axes
    assert answer.dimension is None and not why.causes
    assert "because none of its operands and users" in " ".join(why.text().split())


def test_where_a_missing_axis_ends():
    """The axis comes as far as the constraint, which closes the dimension."""

    def closed(x, w):
        h = x @ w
        h = jax.lax.with_sharding_constraint(h, P("data", None))
        y = jnp.tanh(h)
        return y

    program = sv.trace(closed, *ARGS[:2])
    plan = sv.Plan(MESH, (P("data"), P(None, "model")))
    (answer,) = program.why(plan, "y", axis="model").axes
    (stop,) = answer.stops
    assert (stop.last.name, str(stop.last.spec)) == ("h", "P('data', 'model')")
    line = closed.__code__.co_firstlineno + 2
    assert stop.words == f"the constraint at test_why.py:{line} says P('data')"


def named(report, label):
    return next(v for v in report.intermediates if v.label == label)


def pspec(spec):
    return P(*(axes or None for axes in spec.dims))


def test_two_that_bring_an_axis_only_together():
    """Of three arrays side by side two are cut by `a` and one by `b`: two have more to say, one has not."""

    def joined(x1, x2, x3):
        y = jnp.concatenate([x1, x2, x3], axis=1)
        return y

    program = sv.trace(joined, *[jax.ShapeDtypeStruct((16, 16), jnp.float32)] * 3)
    plan = sv.Plan({"a": 2, "b": 2}, (P("b"), P("a"), P("a")))
    why = program.why(plan, "y", axis="a")
    assert [(c.source.name, c.verdict, c.enough) for c in why.causes] == [
        ("x2", "needed", False),
        ("x3", "needed", False),
    ]
    assert "because of x2 P('a') together with x3 P('a'); neither is enough" in " ".join(why.text().split())
    for name in ("x2", "x3"):
        changed = program.propagate(plan.with_spec(name, P()))
        assert dimension(named(changed, "y"), "a") is None
    missing = program.why(plan, "y", axis="b").axes[0]
    assert missing.dimension is None and missing.stops[0].last.name == "x1"


def test_an_edit_is_answered_before_a_why_ends_and_a_newer_question_ends_it():
    program = sv.trace(mlp, *ARGS)
    state = ExplorerState(program, PLAN, level="partitioned", debounce=600)
    value = named(state.report, "h").name

    async def ask():
        state.ask_why(value)
        assert state.now.why.busy
        assert state.set_spec("x", P()) and state.report.value("x").spec == Spec.of(P(), 2)
        assert not state.now.why.name
        assert state.undo()
        state.ask_why(value)
        state.ask_why("w2", "model")
        while state.now.why.busy:
            await asyncio.sleep(0.01)

    asyncio.run(ask())
    assert state.now.why.answer.value.name == "w2" and not state.now.why.trouble
    assert state.now.why.answer.axes == program.why(PLAN, "w2", axis="model").axes
    state.stop()


def test_an_argument_and_an_output_say_it_themselves(program):
    why = program.why(PLAN, "w1", axis="model")
    assert not why.chain and why.causes[0].source.name == "w1" and why.role == "argument"
    assert "w1 is sharded along model because its own spec says so: P(None, 'model')" in why.text()


@pytest.mark.parametrize(
    ("of", "axis", "words"),
    [
        ("nothing", None, "no value of this name or line; there are 'h', 'y'"),
        ("h", "depth", "axis='depth': the mesh has no such axis; it has 'data', 'model'"),
        (3, None, "expected the name of a value, a Value or a Collective of the propagated report, not 3"),
    ],
)
def test_what_is_not_there(program, of, axis, words):
    with pytest.raises(ShardvizError, match=re.escape(words)):
        program.why(PLAN, of, axis=axis)


@pytest.fixture(scope="module")
def llama():
    return gallery.llama("8b", layers=2)


@pytest.fixture(scope="module")
def moe():
    return gallery.moe()


def test_through_loops_and_functions(llama):
    """In a Llama's step a layer's product is cut by its stacked weights, which a loop and a function hand on."""
    example = llama
    why = example.program.why(example.plan, "g", axis="model")
    assert {c.source.name for c in why.causes} == {f"params['layers']['{w}']" for w in ("w1", "w2", "w3")}
    assert {c.verdict for c in why.causes} == {"one of several"}
    assert {"loop", "call", "dynamic_slice", "dot_general", "mul"} <= {h.op for h in why.chain}
    check_chain(why.axes[0], why.value, "model")
    data = example.program.why(example.plan, "g", axis="data")
    assert {c.source.role for c in data.causes} == {"constraint"}


# Collectives and the contest.


def test_partial_sums(program):
    """The second product sums over a dimension that both factors cut, so what each device has is a part."""
    report = program.propagate(PLAN)
    (collective,) = report.collectives
    why = program.why(PLAN, collective)
    assert (why.need.kind, why.need.op, why.need.rule) == ("partial sums", "dot_general", "([i, k], [k, j])->([i, j])")
    assert (
        "dot_general sums over dimension 1 of h and dimension 0 of w2, which are sharded along model" in why.need.words
    )
    assert (why.need.before.unreduced, why.need.after.unreduced) == (("model",), ())
    best = why.changes[0]
    assert best.removed and {s.name for s in best.losing} == {"w1", "w2"}
    check_way(program, PLAN, best)
    assert json.loads(why.to_json())["need"]["kind"] == "partial sums"


def test_operands_that_disagree(program):
    """`data` cuts the rows of `x` and what `w1` is summed over: one of the two has to move."""
    plan = PLAN.with_spec("w1", P("data", "model"))
    report = program.propagate(plan)
    (moved,) = report.collectives.where("all-gather")
    assert [(c.kind, c.shape) for c in program.partition(plan).collectives] == [
        (c.kind, c.shape) for c in report.collectives
    ]
    why = program.why(plan, moved)
    assert (why.need.kind, why.need.value, str(why.need.before)) == ("disagree", "w1", "P('data', 'model')")
    assert str(why.need.after) == "P(None, 'model')"
    assert "data is taken by dimension 0 of x, another dimension of the operation" in why.need.words
    ways = {tuple(s.name for s in w.losing): w for w in why.changes}
    assert ways["w1",].removed and ways["x",].removed
    for way in why.changes:
        check_way(program, plan, way)


def check_way(program, plan, way):
    """What a way is said to cost is what the plan that a person would write costs."""
    for source in way.losing:
        old = dict(program.bind(plan).in_specs)[source.name]
        dims = (tuple(a for a in axes if d != source.dimension or a != source.axis) for d, axes in enumerate(old.dims))
        plan = plan.with_spec(source.name, P(*(axes or None for axes in dims)))
    report = program.propagate(plan)
    assert way.after.bytes == sum(c.total_bytes for c in report.collectives)
    assert way.after.collectives == len(report.collectives)
    assert way.after.flops == report.cost.dot_flops
    assert way.after.held == sum(v.bytes_per_device for v in report.arguments)


def test_a_constraint_that_moves():
    """The constraint leaves `model` out; with it nothing moves."""

    def constrained(x, w):
        y = x @ w
        return jax.lax.with_sharding_constraint(y, P("data", None))

    program = sv.trace(constrained, *ARGS[:2])
    plan = sv.Plan(MESH, (P("data"), P(None, "model")))
    (collective,) = program.propagate(plan).collectives
    why = program.why(plan, collective)
    assert why.need.kind == "constraint" and why.need.source.line == constrained.__code__.co_firstlineno + 2
    assert "asks for P('data'), and y is made as P('data', 'model')" in why.need.words
    best = why.changes[0]
    assert best.removed and best.after.collectives == 0 and best.gaining and "P('data', 'model')" in best.text
    assert [c.source.name for c in why.causes] == ["w"] and why.chain[-1].after.name == "y"


def test_an_output_that_moves(program):
    plan = PLAN.with_spec({"w2": P("model")}).with_spec({"result": P(None, "data")}, output=True)
    kinds = {program.why(plan, c).need.kind for c in program.propagate(plan).collectives}
    assert "output" in kinds


def test_a_contest_is_tried(program):
    """`wanted` is what a constraint that says so gives, written into the function."""
    plan = sv.Plan(MESH, (P("model"), P(None, "model"), P("model")))
    (contest,) = program.why(plan, "h").contest
    assert (contest.op, contest.value, contest.wanted_by) == ("dot_general", "dot_general", "x")
    assert (str(contest.chosen_spec), str(contest.wanted_spec)) == ("P(None, 'model')", "P('model', None)")

    def edited(x, w1, w2):
        h = jax.lax.with_sharding_constraint(x @ w1, P("model", None))
        return jax.nn.relu(h) @ w2

    other = sv.trace(edited, *ARGS).propagate(plan)
    assert contest.wanted.bytes == sum(c.total_bytes for c in other.collectives)
    assert contest.chosen.bytes == sum(c.total_bytes for c in program.propagate(plan).collectives)
    assert contest.verdict == "chosen is cheaper"
    timed = program.why(plan, "h", target="tpu v5e:2x4").contest[0]
    assert timed.chosen.seconds == sv.cost(program.propagate(plan), "tpu v5e:2x4").seconds


def test_a_contest_over_what_is_summed_is_tried():
    """The weight's rows are cut along the axis of the batch: it is gathered. The other choice cuts what `x` has to be
    summed over: a constraint written into the function says so, and costs what the contest says."""

    def product(x, w, constrained=False):
        x = jnp.tanh(x)
        x = jax.lax.with_sharding_constraint(x, P(None, "data")) if constrained else x
        y = x @ w
        return jax.lax.with_sharding_constraint(y, P("data", None))

    shapes = jax.ShapeDtypeStruct((512, 64), jnp.float32), jax.ShapeDtypeStruct((64, 32), jnp.float32)
    plan = sv.Plan(MESH, (P("data"), P("data")))
    program, other = sv.trace(product, *shapes), sv.trace(functools.partial(product, constrained=True), *shapes)
    (collective,) = program.propagate(plan).collectives
    (contest,) = program.why(plan, collective, target="tpu v5e:2x4").contest
    assert (contest.value, contest.wanted_by, contest.dimension) == ("x", "w", 1)
    assert (str(contest.chosen_spec), str(contest.wanted_spec)) == ("P('data', None)", "P(None, 'data')")
    for effect, report in ((contest.chosen, program.propagate(plan)), (contest.wanted, other.propagate(plan))):
        assert effect.bytes == sum(c.total_bytes for c in report.collectives)
        assert effect.seconds == sv.cost(report, "tpu v5e:2x4").seconds
    assert contest.verdict == "chosen is cheaper" and contest.wanted.bytes > contest.chosen.bytes


@pytest.mark.long
def test_every_collective_of_the_gallery_has_a_reason(llama, moe):
    """Each is classified, and each says which operation needs it."""
    for example in (llama, moe, gallery.ring()):
        report = example.program.propagate(example.plan)
        for collective in (*report.collectives[:3], *report.collectives[6::24]):
            need = example.program.why(example.plan, collective).need
            assert need.kind in NEEDS and need.kind != "other" and need.words.endswith("."), collective
            assert (need.kind == "said") == (collective.origin == "user")


HLO = re.compile(r"%|stablehlo|sdy\.|[a-z_-]+\.\d+(?!\d*\))\b|factor|HLO|Shardy|reshard")


def first_sentences(document):
    """What is read first: the heading's lines, and the first paragraph of each section."""
    sections = [b for b in document.blocks if isinstance(b, Section) and b.name != "changes"]
    firsts = [[b for b in section.blocks if isinstance(b, Paragraph)][:1] for section in sections]
    return [plain(first.pieces) for each in firsts for first in each]


@pytest.mark.long
def test_a_newcomer_can_read_the_first_sentences(llama, program):
    """No HLO names, no words of a compiler's: variables, lines, operations as JAX calls them, axes, dimensions."""
    report = llama.program.propagate(llama.plan)
    answers = [llama.program.why(llama.plan, name) for name in ("g", "x", "params['emb']")]
    answers += [llama.program.why(llama.plan, c) for c in report.collectives[3::40]]
    answers.append(program.why(PLAN.with_spec({"w1": P(), "w2": P()}), "h", axis="model"))
    checked = 0
    for answer in answers:
        for text in first_sentences(document(answer)):
            checked += 1
            without_lines = re.sub(r"\w+\.py:\d+", "", text)
            assert not HLO.search(without_lines), text
    assert checked > 8


@pytest.mark.parametrize(
    ("chosen", "wanted", "verdict"),
    [
        ((100, 10, None), (200, 10, None), "chosen is cheaper"),
        ((200, 10, None), (100, 10, None), "wanted is cheaper"),
        ((200, 10, None), (100, 20, None), "depends on the machine"),
        ((200, 10, 1.0), (100, 20, 2.0), "chosen is cheaper"),
        ((200, 10, None), (200.5, 10, None), "a tie"),
        ((0, 0, None), (0, 0, None), "a tie"),
    ],
)
def test_who_is_cheaper(chosen, wanted, verdict):
    effect = lambda row: Effect(bytes=row[0], collectives=1, flops=row[1], held=0, seconds=row[2])
    assert outcome(effect(chosen), effect(wanted)) == verdict


def test_another_plans_collective_is_refused(program):
    (other,) = program.propagate(PLAN).collectives
    with pytest.raises(ShardvizError, match="Shardy's propagation, which answers this, has no all-"):
        program.why(sv.Plan(MESH), other)


def test_a_collective_of_the_partitioner_is_that_of_the_same_line(program):
    (made,), (seen,) = program.partition(PLAN).collectives, program.propagate(PLAN).collectives
    assert made.name != seen.name
    assert program.why(PLAN, made).collective == program.why(PLAN, seen).collective == seen


@pytest.mark.long
def test_where_the_partitioner_makes_another_collective_both_are_named():
    program = decode()
    plan = program.presets("data=4,model=2")["fsdp"]
    answers = [(c, program.why(plan, c)) for c in program.partition(plan).collectives if c.kind == "all-gather"]
    others = [(c, why) for c, why in answers if why.collective.kind != c.kind]
    assert others, "Shardy sums what XLA gathers the factors of"
    for c, why in answers:
        both = f"makes this {c.kind} where Shardy's propagation has the {why.collective.kind}"
        assert (both in why.need.words) is (why.collective.kind != c.kind)
        assert "".join(why.need.words.split()) in "".join(why.text().split())


@pytest.mark.long
def test_the_largest_collectives_of_the_partitioner_are_answered(moe):
    """Those of level partitioned that stand for none of Shardy's, too: it says which operation they are for."""
    programs = {program: program.presets("data=4,model=2")["fsdp"] for program in (decode(), vit(layers=1))}
    for program, plan in {**programs, moe.program: moe.plan}.items():
        found = sorted(program.partition(plan).collectives, key=lambda c: -c.assumed_bytes)[:5]
        answers = [program.why(plan, collective) for collective in found]
        assert found and all(why.need.kind in NEEDS and why.need.words for why in answers)


def test_a_shard_map_says_it():
    """What a shard_map takes is cut as its specs say: taken away around it, the axis is gone; inside, shapes follow."""
    mesh = sv.mesh(**MESH)

    def manual(x, w):
        h = x @ w
        body = lambda h: jax.lax.psum(h.sum(1, keepdims=True), "model")
        s = jax.shard_map(body, mesh=mesh, in_specs=P("data", "model"), out_specs=P("data", None))(h)
        y = h / s
        return y

    program = sv.trace(manual, *ARGS[:2])
    plan = sv.Plan(MESH, (P(), P()))
    why = program.why(plan, "h", axis="model")
    (cause,) = why.causes
    assert (cause.source.role, cause.verdict, cause.enough) == ("shard_map", "needed", True)
    assert str(cause.source.spec) == "P('data', 'model')" and not why.axes[0].notes
    with pytest.raises(ShardvizError, match="the shapes inside a shard_map follow from its specs"):
        why.without(cause)
    both = program.why(plan, "y", axis="data")
    assert {(c.source.role, str(c.source.spec.canonical()), c.verdict) for c in both.causes} == {
        ("shard_map", "P('data', 'model')", "one of several"),
        ("shard_map", "P('data')", "one of several"),
    }
    check_chain(both.axes[0], both.value, "data")
    (collective,) = program.propagate(plan).collectives
    assert program.why(plan, collective).need.kind == "said"
    assert not why.contest  # a part of what a device has costs nothing


@pytest.mark.parametrize(
    ("seen", "needed"), [((None, "model"), True), (("data", "model"), True), (("data", None), False)]
)
def test_a_shard_maps_spec_is_taken_away_as_if_another_were_written(seen, needed):
    """A shard_map whose specs a person wrote without the axis leaves the value without it, and so does the trial."""
    mesh = sv.mesh(**MESH)

    def manual(spec, x, w):
        h = x @ w
        return jax.shard_map(lambda h: h * 2, mesh=mesh, in_specs=P(*spec), out_specs=P(*spec))(h)

    plan = sv.Plan(MESH, (P(), P()))
    trace = lambda spec: sv.trace(functools.partial(manual, spec), *ARGS[:2])
    why = trace(seen).why(plan, "h", axis="model")
    assert bool(why.causes) == needed
    if needed:
        other = trace((seen[0], None))
        assert dimension(named(other.propagate(plan), "h"), "model") is None


def test_what_no_spec_could_cut():
    """A single number, and what each device has of its own."""

    def scaled(x):
        s = jnp.sum(x) * 2
        body = lambda x: jnp.sin(x)
        return jax.shard_map(body, mesh=sv.mesh(**MESH), in_specs=P("data"), out_specs=P("data"))(x) * s

    program = sv.trace(scaled, ARGS[0])
    plan = sv.Plan(MESH, (P("data"),))
    sine = next(v for v in program.propagate(plan).intermediates if v.op == "sin")
    text = " ".join(program.why(plan, sine, axis="data").text().split())
    assert (
        "is not sharded along data: it is inside a shard_map over data, along which every device has an array" in text
    )


def test_explicit_axes_say_it_in_types():
    def typed(x, w):
        h = x @ w
        y = jnp.tanh(h)
        return y

    program = sv.trace(typed, *ARGS[:2])
    plan = sv.Plan("data=2:Explicit,model=4:Explicit", (P("data", None), P(None, "model")))
    why = program.why(plan, "y", axis="model")
    assert {c.source.role for c in why.causes} == {"type"}
    assert "change the arguments' specs" in " ".join(why.text().split())


@pytest.mark.long
def test_what_is_asked_about_is_the_value_of_the_report(llama, moe):
    """Numbers on operations change nothing: an axis that cuts a value in the report is explained, no other is."""
    for example in (llama, moe):
        report = example.program.propagate(example.plan)
        for value in report.intermediates[5::200]:
            for answer in example.program.why(example.plan, value).axes:
                at = None if value.spec is None else dimension(value, answer.axis)
                assert answer.dimension == at or value.manual, value.name
                assert bool(answer.causes) == (answer.dimension is not None)


def test_each_of_two_statements_in_a_line_names_its_own_value(tmp_path):
    path = tmp_path / "model.py"
    line = 'h = x @ w; y = jnp.tanh(h); z = {";": y}[";"] + 1'
    path.write_text(f"import jax.numpy as jnp\n\n\ndef f(x, w):\n    {line}\n    return z\n")
    array = jax.ShapeDtypeStruct((8, 8), "float32")
    program = sv.trace(runpy.run_path(str(path))["f"], array, array)
    plan = sv.Plan({"model": 4}, (P(), P(None, "model")))
    named = {value.label: value.name.split(".")[0] for value in program.propagate(plan).intermediates if value.label}
    assert named == {"h": "dot_general", "y": "tanh", "z": "add"}
    assert [program.why(plan, name).value.label for name in named] == ["h", "y", "z"]

"""The search for plans of several programs: never worse than the single searches, and what brute force finds."""

import itertools

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.records.together import OWN, TogetherSearchRecord
from shardviz.runs.joint import JointScorer, _Names
from tests.runs.test_together import TARGET, decoded, prefilled, trained

pytestmark = pytest.mark.slow

FOUR = "tpu v5p:2x2x1"


def abstract(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def layer(params, x):
    return jax.nn.relu(x @ params["up"]) @ params["down"]


def descent(params, x):
    gradients = jax.grad(lambda p: (layer(p, x) ** 2).mean())(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


def append(params, cache, x):
    y = layer(params, x)
    return y, jax.lax.dynamic_update_slice(cache, y[:, None], (0, 0, 0))


def read(params, cache, x):
    scores = jnp.einsum("bd,btd->bt", layer(params, x), cache)
    return jnp.einsum("bt,btd->bd", jax.nn.softmax(scores), cache)


def programs(wide, hidden, rows, few, length):
    params = {"up": abstract(wide, hidden), "down": abstract(hidden, wide)}
    return {
        "train": sv.trace(descent, params, abstract(rows, wide), donate_argnums=0),
        "infer": sv.trace(layer, params, abstract(few, wide)),
        "append": sv.trace(append, params, abstract(few, length, wide), abstract(few, wide), donate_argnums=1),
        "read": sv.trace(read, params, abstract(few, length, wide), abstract(few, wide)),
    }


def the_set(names, sizes, mesh, shared):
    every = programs(*sizes)
    given = {name: (every[name], sv.Plan(mesh)) for name in names}
    return sv.together(given, target=FOUR, shared=shared)


def scorer_of(together, weights):
    names = {side.name: _Names(side, together.shared) for side in together.sides}
    return JointScorer(together.machine, together.sides, together.shared, weights, names), names


def every_spec(shape, mesh):
    """Every spec: each axis shards one dimension that it divides, or none."""
    for places in itertools.product((None, *range(len(shape))), repeat=len(mesh)):
        dims = [tuple(a for a, p in zip(mesh, places, strict=True) if p == d) for d in range(len(shape))]
        counts = (jnp.prod(jnp.array([mesh[a] for a in dim] or [1])) for dim in dims)
        if all(size % int(count) == 0 for size, count in zip(shape, counts, strict=True)):
            yield P(*(dim or None for dim in dims))


def brute_force(together, weights, mesh):
    """The fewest seconds over every spec of every argument, arrays that are shared alike; outputs that replace an
    argument are sharded as it is."""
    scorer, names = scorer_of(together, weights)
    arrays = {names[s.name].joint(a.name): a.shape for s in together.sides for a in s.program.arguments}
    follows = {new: old for each in names.values() for new, old in each.follows().items()}
    best = None
    for specs in itertools.product(*(list(every_spec(shape, mesh)) for shape in arrays.values())):
        ins = dict(zip(arrays, specs, strict=True))
        plan = sv.Plan(mesh, edits=ins, out_edits={new: ins[old] for new, old in follows.items()})
        score = scorer(plan)
        if not score.over and (best is None or score.seconds < best):
            best = score.seconds
    return best


SETS = {
    "training counts": (("train", "infer"), (1024, 4096, 8192, 8, 8), {"x": 4}, "params", {"train": 1, "infer": 1}),
    "inference counts": (("train", "infer"), (2048, 8192, 64, 8, 8), {"x": 4}, "params", {"train": 1, "infer": 5000}),
    "a cache between two": (
        ("append", "read"), (512, 2048, 8, 64, 512), {"x": 4}, ["params", "cache"], {"append": 1, "read": 3},
    ),
    "two axes": (("train", "infer"), (1024, 4096, 4096, 16, 8), {"x": 2, "y": 2}, "params", {"train": 1, "infer": 50}),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", SETS)
def test_it_finds_the_optimum_that_brute_force_finds(name):
    names, sizes, mesh, shared, weights = SETS[name]
    together = the_set(names, sizes, mesh, shared)
    found = together.search(weights, seconds=60, mesh=mesh, most=300, level="propagated")
    assert found.record.best.seconds == pytest.approx(brute_force(together, weights, mesh), rel=1e-6)


@pytest.mark.parametrize("weights", [{"train": 1, "decode": 1000}, {"train": 100, "decode": 1}])
def test_it_is_never_worse_than_a_single_search_imposed_on_the_other(weights):
    """The single searches are made here again, with their own options, and their plans are timed as plans are."""
    together = sv.together(train=trained(), decode=decoded(), target=TARGET)
    found = together.search(weights, seconds=300, most=40, level="propagated")
    timed = lambda program, plan: sv.cost(program.propagate(plan, TARGET), TARGET).step.seconds
    ours = sum(weights[side.name] * timed(side.program, side.plan) for side in found.together.sides)
    assert ours == pytest.approx(found.record.best.seconds)
    for leader, other in itertools.permutations(together.sides):
        best = sv.search(leader.program, TARGET, plan=leader.plan, seconds=300, level="propagated", most=40).best.plan
        specs = leader.program.bind(best).in_specs
        pins = {path: specs[path] for path in ("params['w1']", "params['w2']")}
        follows = sv.search(other.program, TARGET, mesh=best.mesh, pins=pins, seconds=300, level="propagated", most=40)
        theirs = weights[leader.name] * timed(leader.program, best)
        theirs += weights[other.name] * timed(other.program, follows.best.plan)
        assert ours <= theirs * (1 + 1e-9)
    assert not found.together.record.conflicts
    found.together.require()


def test_the_weights_decide():
    """Where decode runs often its plan is better than where it hardly runs; the same of training."""
    together = sv.together(train=trained(), decode=decoded(), target=TARGET)
    many, few = (
        together.search(w, seconds=300, most=60, level="propagated").record for w in ({"decode": 1}, {"train": 1})
    )
    cost = lambda record: {each.program: each.seconds for each in record.best.costs}
    assert cost(many)["decode"] <= cost(few)["decode"] and cost(few)["train"] <= cost(many)["train"]
    assert cost(many) != cost(few)


def test_the_cache_that_one_program_writes_is_sharded_as_the_other_reads_it():
    together = sv.together(prefill=prefilled(out=P(None, "data")), decode=decoded(), target=TARGET)
    assert together.record.findings
    found = together.search({"prefill": 1, "decode": 10}, seconds=30, most=30, level="propagated")
    found.together.require()
    bound = found.together["prefill"].program.bind(found.plans["prefill"])
    read = found.together["decode"].program.bind(found.plans["decode"]).in_specs["cache['k']"]
    assert bound.out_specs["result[1]['k']"].same_as(read, bound.mesh)


def test_it_survives_json_and_shows_itself():
    found = sv.together(train=trained(), decode=decoded(), target=TARGET, calls={"train": 1, "decode": 9}).search(
        seconds=20, most=12, level="propagated"
    )
    assert TogetherSearchRecord.from_json(found.to_json()) == found.record
    assert found.record.weights == {"train": 1, "decode": 9}
    assert OWN in found.text() and "the best for train alone" in found.html()


def test_bad_input_says_what_to_give():
    together = sv.together(train=trained(), decode=decoded(), target=TARGET)
    for asked, words in (
        ({"weights": {"tran": 1}}, "of 'train', 'decode'"),
        ({"weights": {"train": -1}}, "0 or more"),
        ({"weights": {"train": 0}}, "all are 0"),
        ({"seconds": 0}, "above 0"),
        ({"level": "compile"}, "level is 'propagated', 'partitioned', 'compiled'"),
        ({"mesh": {"data": 4}}, "4 devices"),
    ):
        with pytest.raises(sv.errors.ShardvizError, match=words):
            together.search(**asked)
    with pytest.raises(sv.errors.ShardvizError, match="the machine is not known"):
        sv.together(train=trained(), decode=decoded()).search()


@pytest.mark.parametrize("prefills", [False, True])
def test_the_memory_of_a_search_is_that_of_the_budget(prefills):
    """Both count shared arrays once, and those of other programs beside."""
    more = {"prefill": prefilled(out=P("data"))} if prefills else {}
    together = sv.together(train=trained(), decode=decoded(), target=TARGET, **more)
    found = together.search({"train": 1, "decode": 10}, seconds=20, most=12, level="propagated")
    for row, programs in ((found.record.best, found.together), (_own(found.record), together)):
        assert row.needs_bytes == pytest.approx(programs.memory("cache").most.total)


def _own(record):
    return next(each for each in record.others if each.name == OWN)


@pytest.mark.parametrize("level", ["partitioned", pytest.param("compiled", marks=pytest.mark.tpu)])
def test_the_best_plans_are_those_that_the_level_confirms(level):
    """Each confirmed set has the seconds of its programs at the level, one comes of a single search, and none of them
    is better than the answer. One that the time was too short for is there too, with the reason."""
    weights = {"train": 1, "decode": 1000}
    found = sv.together(train=trained(), decode=decoded(), target=TARGET).search(
        weights, seconds=120, most=20, level=level
    )
    record = found.record
    asked = [{"partitioned": s.program.partition, "compiled": s.program.compile}[level] for s in found.together.sides]
    seconds = [
        sv.cost(ask(side.plan, TARGET), TARGET).step.seconds
        for ask, side in zip(asked, found.together.sides, strict=True)
    ]
    assert [cost.seconds for cost in record.best.costs] == pytest.approx(seconds)
    assert record.best.seconds == pytest.approx(seconds[0] + 1000 * seconds[1]) and record.best.fits
    assert record.level == record.best.level == level != record.predicted.level
    assert record.best.seconds == min(row.seconds for row in record.confirmed if row.seconds is not None)
    assert all(row.seconds or any(cost.why_not for cost in row.costs) for row in record.confirmed)
    assert any(row.name != "together" for row in record.confirmed)
    if level == "compiled":
        assert record.best.needs_bytes == found.together.memory(level="compiled").most.total
    assert f"{level}\n" in found.text() and TogetherSearchRecord.from_json(found.to_json()) == record


def test_programs_of_weight_0_follow_and_do_not_decide():
    """The prefill counts nothing, but has the weights and writes the cache as the others have them."""
    programs = {"train": trained(), "decode": decoded(), "prefill": prefilled(out=P("data"))}
    found = sv.together(programs, target=TARGET).search(
        {"train": 1, "decode": 10}, seconds=20, most=12, level="propagated"
    )
    assert not found.together.record.conflicts
    found.together.require()
    assert found.record.weights == {"train": 1, "decode": 10, "prefill": 0}

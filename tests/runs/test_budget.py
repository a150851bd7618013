"""One memory budget: its parts are the compilers' own plans, shared arrays count once, and the room holds."""

import os
from pathlib import Path

import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.records.budget import Budget
from tests.runs.test_together import CACHE, PARAMS, TARGET, TENSOR, decode, decoded, of, prefilled, trained
from tests.truth import answers_of

CPU = {"data": 2, "model": 4}


def three(target=None, mesh=None, **more):
    mesh = {"data": 4, "model": 4} if mesh is None else mesh
    program, plan = trained()
    return sv.together(
        train=(program, plan.with_mesh(mesh)),
        prefill=prefilled(mesh, P("data")),
        decode=decoded(mesh=mesh),
        target=target,
        **more,
    )


def check_parts(budget, programs, target):
    """Every program's parts are its compiler's plan, and no part is missing."""
    for each in budget.programs:
        side = programs[each.program]
        memory = side.program.compile(side.plan, target).memory
        assert each.level == "compiled"
        assert each.own == memory.takes
        assert each.held + each.batch + each.padding == memory.arguments
        assert each.outputs == memory.outputs - memory.aliased
        assert each.temporaries == memory.temporaries
    assert budget.most.total == max(each.total for each in budget.programs)


def test_the_parts_are_the_plans_of_the_compiler_for_cpus():
    programs = three(mesh=CPU)
    check_parts(programs.memory("cache", level="compiled"), programs, "cpu")


@pytest.mark.tpu
def test_the_parts_are_the_plans_of_the_compiler_for_tpus():
    programs = three(TARGET)
    budget = programs.memory("cache", level="compiled")
    check_parts(budget, programs, TARGET)
    assert budget.usable == programs["decode"].program.compile(programs["decode"].plan, TARGET).memory.hbm


@pytest.mark.parametrize("level", ["propagated", "compiled"])
def test_shared_arrays_count_once_and_those_of_others_beside(level):
    budget = three(mesh=CPU).under("decode").memory("cache", level=level)
    held = {(each.kind, each.programs): each.nbytes for each in budget.held}
    eighth = 2 * 1024 * 4096 * 2 / 8  # both matrices, over all devices
    assert held == {
        ("weights", ("train", "prefill", "decode")): eighth,
        ("optimizer state", ("train",)): eighth,
        ("cache", ("decode", "prefill")): 64 * 128 * 1024 * 2 / 2,
    }
    each = {one.program: one for one in budget.programs}
    constants = sum(one.constants for one in budget.programs)
    assert each["train"].held == 2 * eighth
    assert each["train"].beside == held["cache", ("decode", "prefill")] + constants - each["train"].constants
    assert each["decode"].beside == each["prefill"].beside + each["prefill"].constants - each["decode"].constants
    assert budget.left is None and budget.cache.most is None  # CPUs have no known memory


@pytest.mark.long
@pytest.mark.tpu
@pytest.mark.skipif("SHARDVIZ_CLONES" not in os.environ, reason="no jax-llm-examples: SHARDVIZ_CLONES is not set")
def test_the_parts_of_an_engine_with_four_buckets_are_its_compilers_plans():
    folder = Path(os.environ["SHARDVIZ_CLONES"]) / "jax-ml/jax-llm-examples/llama3"
    assert "forward 4 needs most" in answers_of(Path(__file__).with_name("engine_on_8.py"), folder, "tpu v5e:2x4")


def test_batches_that_wait_count():
    one, three_of_them = (three(TARGET).memory(batches=count) for count in (1, 3))
    batch = 512 * 1024 * 2 / 4
    more = {each.program: each.more_batches for each in three_of_them.programs}
    assert more["train"] == 2 * batch and not any(each.more_batches for each in one.programs)


@pytest.mark.parametrize("level", ["propagated", pytest.param("compiled", marks=pytest.mark.tpu)])
def test_the_sequences_that_fit_do_fit_and_a_few_percent_more_do_not(level):
    """A cache of as many sequences is traced, and asked about again; its batch and temporaries are small beside it."""

    def budget(count):
        cache = {"k": of(count, 2048, 1024)}
        program = sv.trace(decode, PARAMS, cache, of(count, 1024), donate_argnums=1)
        plan = sv.Plan({"data": 4, "model": 4}, in_specs=(TENSOR, {"k": P("data")}, P("data")))
        both = sv.together(train=trained(TENSOR), decode=(program, plan), target=TARGET, shared="params")
        return both.memory("cache", level=level)

    room = budget(64).cache
    assert (room.count, room.devices, room.unit_bytes) == (64, 4, 2048 * 1024 * 2)
    assert room.most % 4 == 0
    fits, over = (budget(int(room.most * share) // 4 * 4) for share in (0.98, 1.01))
    assert fits.left > 0 > over.left
    assert fits.most.program == over.most.program == "decode"


def test_a_cache_that_is_not_donated_is_held_twice():
    program, plan = decoded()
    kept = sv.trace(decode, PARAMS, {"k": CACHE}, of(64, 1024))
    rooms = []
    for each in (program, kept):
        budget = sv.together(train=trained(), decode=(each, plan), target=TARGET, shared="params").memory("cache")
        rooms.append(budget.cache.most)
        assert [f.id for f in budget.findings] == ["cache-not-donated:decode:cache['k']"] * (each is kept)
    assert rooms[1] == pytest.approx(rooms[0] / 2, rel=0.01)


def test_it_survives_json_and_shows_itself():
    budget = three(TARGET).memory("cache", unit="page")
    assert Budget.from_json(budget.to_json()) == budget
    assert "the cache has 64 pages" in budget.text() and "optimizer state" in budget.html()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"cache": "kv"}, "no program has an argument at this path; the arguments are params"),
        ({"cache": "cache", "dimension": 3}, r"cache\['k'\] has the shape \(64, 128, 1024\); give the dimension"),
        ({"level": "partitioned"}, "the level is 'propagated' or 'compiled'"),
        ({"batches": 0}, "1 or more"),
    ],
)
def test_bad_input_says_what_to_give(asked, words):
    with pytest.raises(sv.errors.ShardvizError, match=words):
        three().memory(**asked)

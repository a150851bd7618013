"""Programs that share arrays: which these are, what each program costs under one assignment, and what is broken."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.records.together import OWN, TogetherRecord

TARGET = "tpu v5e:4x4"
MESH = {"data": 4, "model": 4}


def of(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


PARAMS = {"w1": of(1024, 4096), "w2": of(4096, 1024)}
CACHE = of(64, 128, 1024)


def layer(params, x):
    return jax.nn.relu(x @ params["w1"]) @ params["w2"]


def train(params, momentum, x):
    gradients = jax.grad(lambda p: layer(p, x).astype(jnp.float32).sum())(params)
    momentum = jax.tree.map(lambda m, g: m * 0.9 + g, momentum, gradients)
    return jax.tree.map(lambda p, m: p - m, params, momentum), momentum


def prefill(params, x):
    return x[:, -1], {"k": layer(params, x)}


def decode(params, cache, x):
    y = layer(params, x)
    return y, {"k": jax.lax.dynamic_update_slice(cache["k"], y[:, None], (0, 0, 0))}


FSDP = {"w1": P("data", "model"), "w2": P("model", "data")}
TENSOR = {"w1": P(None, ("data", "model")), "w2": P(("data", "model"))}
BATCH = P("data")


def trained(params=None):
    params = params or FSDP
    program = sv.trace(train, PARAMS, PARAMS, of(512, 1024), donate_argnums=(0, 1))
    return program, sv.Plan(MESH, in_specs=(params, params, P("data")))


def decoded(params=None, cache=BATCH, mesh=MESH):
    params = params or TENSOR
    program = sv.trace(decode, PARAMS, {"k": CACHE}, of(64, 1024), donate_argnums=1)
    return program, sv.Plan(mesh, in_specs=(params, {"k": cache}, P(next(iter(mesh)))))


def prefilled(mesh=MESH, out=None):
    program = sv.trace(prefill, PARAMS, of(64, 128, 1024))
    replicated = {"w1": None, "w2": None}
    return program, sv.Plan(mesh, in_specs=(replicated, P("data")), out_specs=(None, {"k": out}))


@pytest.fixture(scope="module")
def both():
    return sv.together(train=trained(), decode=decoded(), target=TARGET, calls={"train": 1, "decode": 1000})


def test_the_weights_are_found_and_the_momentum_is_not_shared(both):
    assert [each.name for each in both.record.shared] == ["params['w1']", "params['w2']"]
    assert [m.path for m in both.record.shared[0].members] == ["params['w1']", "params['w1']", "result[0]['w1']"]


def test_each_assignment_costs_what_the_edited_plans_cost(both):
    """The same numbers come of plans that a person edits by hand."""
    program, plan = decoded()
    as_trained = plan.with_spec({"params['w1']": P("data", "model"), "params['w2']": P("model", "data")})
    by_name = {each.name: each for each in both.record.assignments}
    for name, each in ((OWN, plan), ("as train has them", as_trained)):
        seconds = sv.cost(program.propagate(each, TARGET), TARGET).step.seconds
        assert by_name[name].costs[1].seconds == pytest.approx(seconds)
    own, as_train = by_name[OWN], by_name["as train has them"]
    assert as_train.costs[1].seconds > own.costs[1].seconds
    weighted = own.costs[0].seconds + 1000 * own.costs[1].seconds
    assert own.seconds(both.record.calls) == pytest.approx(weighted)


def test_a_conflict_costs_each_program_and_the_resharding_is_that_of_reshard(both):
    conflict = both.record.conflicts[0]
    assert [(wish.programs, wish.spec) for wish in conflict.wishes] == [
        (("train",), "P('data', 'model')"),
        (("decode",), "P(None, ('data', 'model'))"),
    ]
    moved = sv.reshard({"w": PARAMS["w1"]}, P("data", "model"), P(None, ("data", "model")), mesh=MESH, target=TARGET)
    assert (conflict.moves[0].moved_bytes, conflict.moves[0].seconds) == (moved.moved_bytes, moved.seconds)
    assert {cost.program for cost in conflict.costs} == {"train", "decode"}


def test_one_assignment_has_no_conflict_and_breaks_no_contract(both):
    assert {finding.rule for finding in both.record.findings} == {"written-otherwise"}
    with pytest.raises(sv.errors.ContractError, match=r"result\[0\]\['w1'\] of train"):
        both.require()
    for name in ("train", "decode"):
        one = both.under(name)
        assert not one.record.conflicts
        one.require()
        assert one[name].plan == both[name].plan


def test_the_cache_that_prefill_writes_is_read_as_it_is_written():
    """The cache is found as an output of one program and an argument of the other."""
    for out, broken in (
        (P("data"), []),
        (P(None, "data"), ["written-otherwise:decode:cache['k']:prefill:result[1]['k']"]),
    ):
        record = sv.together(prefill=prefilled(out=out), decode=decoded()).record
        cache = next(each for each in record.shared if each.name == "cache['k']")
        assert ("prefill", "output", "result[1]['k']") in [(m.program, m.role, m.path) for m in cache.members]
        assert [f.id for f in record.findings] == broken


def test_shardings_are_compared_and_taken_over_between_meshes_of_the_same_devices():
    wide = decoded({"w1": P(None, "x"), "w2": P("x")}, P("x"), {"x": 16})
    record = sv.together(a=decoded(), b=wide, target=TARGET).record
    disputed = {name for conflict in record.conflicts for name in conflict.names}
    assert disputed == {"cache['k']"}  # ("data", "model") is x
    as_b = next(each for each in record.assignments if each.name == "as b has them")
    assert not any(cost.why_not for cost in as_b.costs)
    as_a = next(each for each in record.assignments if each.name == "as a has them")
    assert as_a.costs[1].why_not == "" or "x" in as_a.costs[1].why_not


def test_it_survives_json_and_shows_itself(both):
    assert TogetherRecord.from_json(both.to_json()) == both.record
    assert "as decode has them" in both.text() and "result[0][&#x27;w1&#x27;] of train" in both.html()
    with pytest.raises(sv.errors.ShardvizError, match="damaged"):
        TogetherRecord.from_json(both.to_json().replace('"shared"', '"sharde"'))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: sv.together(train=trained()), "1 program; give two or more by name"),
        (lambda: sv.together(a=trained(), b=decoded(), shared={"parms": "params"}), r"a has no array at 'parms'"),
        (
            lambda: sv.together(a=trained(), b=decoded(), shared={"params": "cache"}),
            r"no path below these .*params\['w1'\]",
        ),
        (
            lambda: sv.together(a=trained(), b=decoded(), shared={"params['w1']": "params['w2']"}),
            r"a's params\['w1'\] is bfloat16\[1024, 4096\], b's params\['w2'\] is bfloat16\[4096, 1024\]",
        ),
        (lambda: sv.together(a=trained(), b=decoded(mesh={"data": 2, "model": 4})), "have different devices"),
        (lambda: sv.together(a=trained(), b=decoded(), shared=["params", "params['w1']"]), "shared as"),
        (lambda: sv.together(a=trained(), b=decoded(), shared=[{"a": "params", "c": "params"}]), "no program 'c'"),
        (lambda: sv.together(a=trained(), b=decoded(), calls={"c": 1}), "calls an hour"),
        (lambda: sv.together(a=trained(), b=3), r"together\(b=...\)"),
    ],
)
def test_bad_input_names_the_path_both_sides_and_what_to_do(given, words):
    with pytest.raises(sv.errors.ShardvizError, match=words):
        given()


def test_a_run_finds_the_arrays_that_its_programs_share():
    """The weights go from `make` through the train step into prefill and decode; the momentum does not."""
    with sv.dry_run(small=0) as run:
        make = jax.jit(lambda: jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), PARAMS))
        step, first, further = jax.jit(train), jax.jit(prefill), jax.jit(decode)
        params, momentum = make(), make()
        for _ in range(3):
            params, momentum = step(params, momentum, jnp.zeros((512, 1024), jnp.bfloat16))
        x, cache = first(params, jnp.zeros((64, 128, 1024), jnp.bfloat16))
        for _ in range(5):
            x, cache = further(params, cache, x)
    record = run.together().record
    assert record.calls == {"<lambda>": 2, "train": 3, "prefill": 1, "decode": 5}
    found = {each.name: [(m.program, m.role, m.path) for m in each.members] for each in record.shared}
    assert found["params['w1']"] == [
        ("train", "argument", "params['w1']"),
        ("prefill", "argument", "params['w1']"),
        ("decode", "argument", "params['w1']"),
        ("<lambda>", "output", "result['w1']"),
        ("train", "output", "result[0]['w1']"),
    ]
    assert ("prefill", "output", "result[1]['k']") in found["cache['k']"]
    assert not any("momentum" in name for name in found)
    with pytest.raises(sv.errors.ShardvizError, match="no array goes into two of 'train'"):
        run.together("train")


def test_arrays_that_are_given_twice_are_not_one_array():
    """Zeros for two arguments are one array in the first call, and two in all others."""
    with sv.dry_run(small=0) as run:
        zeros = jnp.zeros((64, 64))
        one, other = jax.jit(lambda a, b: (a + 1, b * 2)), jax.jit(lambda a, b: a @ b)
        a, b = one(zeros, zeros)
        a, b = one(a, b)
        other(a, b)
    names = [
        sorted((m.program, m.path) for m in each.members if m.role == "argument")
        for each in run.together(*[n for n, s in enumerate(run) if len(s.recorded.arguments) == 2]).record.shared
    ]
    assert names == [[("<lambda>", "a"), ("<lambda> 2", "a")], [("<lambda>", "b"), ("<lambda> 2", "b")]]

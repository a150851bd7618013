"""Fixes that no plan says: donation, another length, a checkpoint policy. Each is what the function does that a person
edits, or calls, as the fix says; and each takes what it says off the memory."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from functools import reduce

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
import shardviz.gallery.llama
from shardviz.ask.derived import checkpoints, of_variant
from shardviz.errors import ShardvizError, TraceError
from shardviz.plan.plan_code import variant_code
from shardviz.records import Finding, Longer, Reconstrained, Suggestion, Variant
from tests.diagnose import programs
from tests.diagnose.faulty_programs import FAULTS, SIZES
from tests.diagnose.programs import FIRES, Case, s
from tests.plan.edited import edited, said

pytestmark = pytest.mark.long

TARGET = "tpu v5e:2x4"


def tried(case: Case, rule: str, target: str | None = None):
    """The finding of a rule, its fixes, and all of them."""
    found = sv.fixes(case.program, case.report, target, plan=case.plan, findings=9)
    (finding,) = [f for f in case.report.findings if f.rule == rule][:1]
    return finding, found.of(finding), found


def added(state, x):
    return {"w": state["w"] + x}


def test_a_donation_saves_the_memory_that_its_finding_names():
    case = Case(fn=added, args=({"w": s(1024, 1024)}, s(1024)), specs=({"w": P("data")}, P()))
    finding, fixes, _ = tried(case, "not-donated")
    (fix,) = [m for m in fixes if m.plan.variant.donated]
    assert (fix.action, fix.plan) == ("donate state", case.plan.with_variant(donated=("state",)))
    assert fix.write == "jax.jit(added, donate_argnames=['state'])"
    assert -fix.memory == finding.numbers["bytes"]
    before, after = (case.program.compile(p).memory for p in (case.plan, fix.plan))
    assert before.set_aside - after.set_aside == finding.numbers["bytes"]
    assert not case.program.propagate(fix.plan).findings.of("not-donated")
    assert "donate_argnums=(0,)" in case.program.code(fix.plan)
    by_hand = sv.trace(case.fn, *case.args, donate_argnums=0)
    assert (
        [a.donated for a in of_variant(case.program, fix.plan.variant).arguments]
        == [a.donated for a in by_hand.arguments]
        == [True, False]
    )


def test_what_was_donated_before_stays_so_and_static_arguments_are_counted():
    def step(scale, params, momentum, x):
        return jax.tree.map(lambda p: p * scale, params), momentum + x

    given = jax.jit(step, static_argnums=0, donate_argnums=2)
    program = sv.trace(given, 2, {"w": s(8, 8)}, s(8), s(8))
    program = of_variant(program, Variant(donated=("params['w']",)))
    assert {a.name: a.donated for a in program.arguments} == {"params['w']": True, "momentum": True, "x": False}


def test_donation_that_only_the_wrapper_can_say_says_so():
    def f(x, *, y):
        return x + y

    x = s(8, 8)
    with pytest.raises(ShardvizError, match="y: given by keyword"):
        of_variant(sv.trace(f, x, y=x), Variant(donated=("y",)))
    exported = jax.export.export(jax.jit(lambda x: x + 1))(x)
    with pytest.raises(ShardvizError, match="it is an export"):
        of_variant(sv.trace(exported), Variant(donated=("x",)))


def test_a_longer_dimension_is_that_of_arrays_made_so_by_hand():
    case = replace(FIRES["not-divided"][0], level="partitioned")
    finding, fixes, found = tried(case, "not-divided", TARGET)
    (fix,) = [m for m in fixes if "shard it along" in m.action]
    assert fix.action == "make dimension emb:0 1,028 long, in place of 1,025, and shard it along model"
    assert fix.write == "1028 in place of 1025 in momentum['emb']:0, params['emb']:0"
    longer = programs.model(1028, 255)
    by_hand = sv.trace(case.fn, longer, longer, case.args[2])
    cut = programs.ODD | {"emb": P("model")}
    plan = sv.Plan(case.mesh, (cut, cut, P("data")))
    assert said(case.program.partition(fix.plan)) == said(by_hand.partition(plan))
    again = case.program.partition(fix.plan).findings
    assert finding.value not in {f.value for f in again.of("not-divided")}
    assert found.tried == len(found) + len(found.rejected)


def test_a_length_that_the_function_does_not_take_is_not_offered_with_what_it_raises():
    def fixed(table, x):
        return jnp.tanh(x @ table) + jnp.ones((64, 1025))

    case = Case(fn=fixed, args=(s(64, 1025), s(64, 64)), specs=(P(), P("data")))
    program, plan = case.program, case.plan
    (dimension,) = [d for d in program.dimensions if "table:1" in map(str, d.members)]
    with pytest.raises(TraceError, match=r"raised TypeError at test_varied_fixes\.py"):
        of_variant(program, Variant(lengths=(Longer(path="table", dimension=1, size=1025, better=1028),)))
    suggestion = Suggestion(kind="pad", target="table", dimension=1, size=1028)
    finding = Finding("tested:here", "error", "something", axes=("model",), suggestions=(suggestion,))
    report = replace(case.report, diagnostics=(finding,))
    refused = {n.action: n.why for n in sv.fixes(program, report, TARGET, plan=plan).rejected}
    assert "raised TypeError" in refused[f"make dimension {dimension.name} 1,028 long, in place of 1,025"]


LOOP = "jax.lax.scan(body, x, ws)"


@pytest.mark.parametrize("policy", ["dots_saveable", "nothing_saveable"])
def test_a_checkpoint_policy_keeps_less_and_is_that_of_the_edited_function(policy, tmp_path):
    case = FIRES["kept-dominates"][0]
    finding, fixes, _ = tried(case, "kept-dominates")
    (fix,) = [m for m in fixes if policy in m.action]
    report = case.program.propagate(fix.plan)
    assert report.residual_bytes < case.report.residual_bytes == finding.numbers["bytes"] and fix.memory < 0
    wrapped = f"jax.checkpoint(body, prevent_cse=False, policy=jax.checkpoint_policies.{policy})"
    assert fix.write.startswith(f"{wrapped} for the body of the loop at programs.py:")
    assert wrapped in case.program.code(fix.plan)
    by_hand = edited(programs, tmp_path, (LOOP, LOOP.replace("body", wrapped)))
    other = sv.trace(by_hand.layers, *case.args)
    assert said(report) == said(other.propagate(case.plan))
    assert said(case.program.partition(fix.plan)) == said(other.partition(case.plan))
    # the person's own function is as it was
    assert said(sv.trace(case.fn, *case.args).propagate(case.plan)) == said(case.report)


def test_it_goes_into_jitted_functions_and_leaves_no_trace_in_them():
    @jax.jit
    def loss(ws, x):
        return jnp.sum(jax.lax.scan(lambda c, w: (jnp.tanh(jnp.sin(c) @ w), None), x, ws)[0])

    def step(ws, x):
        return jax.grad(loss)(ws, x)

    args = s(4, 16, 16), s(64, 16)
    plan = sv.Plan("data=2", (P(), P("data")))
    bare = sv.trace(step, *args)
    nothing = plan.with_variant(checkpoint="nothing_saveable")
    kept = [sv.trace(step, *args).propagate(nothing).residual_bytes for _ in range(2)]
    assert kept[0] == kept[1] < bare.propagate(plan).residual_bytes
    assert sv.trace(step, *args).propagate(plan).residual_bytes == bare.propagate(plan).residual_bytes
    assert not checkpoints(bare)
    assert len(checkpoints(of_variant(bare, Variant(checkpoint="dots_saveable")))) == 1
    assert "remat" not in str(jax.make_jaxpr(step)(*args))
    assert "checkpoint[" not in str(jax.make_jaxpr(step)(*args))


def through(layer):
    """The gradients of layers that are run one after the other, without a loop of JAX's."""

    def step(ws, x):
        return jax.grad(lambda ws: jnp.sum(reduce(layer, ws, x)))(ws)

    return step


def test_a_function_s_own_checkpoints_get_the_other_policy():
    step = through(jax.checkpoint(lambda c, w: jnp.tanh(jnp.sin(c) @ w)))

    def bare(ws, x):
        return jax.grad(lambda ws: jnp.sum(jnp.tanh(jnp.sin(jnp.tanh(jnp.sin(x) @ ws[0])) @ ws[1])))(ws)

    args = (s(16, 16), s(16, 16)), s(64, 16)
    plan = sv.Plan("data=2", (P(), P("data")))
    own = sv.trace(step, *args).propagate(plan)
    all_kept, dots = (
        sv.trace(step, *args).propagate(plan.with_variant(checkpoint=policy))
        for policy in ("everything_saveable", "dots_saveable")
    )
    assert own.residual_bytes < dots.residual_bytes <= all_kept.residual_bytes
    assert own.cost.dot_flops > dots.cost.dot_flops == all_kept.cost.dot_flops
    assert all_kept.cost.dot_flops == sv.trace(bare, *args).propagate(plan).cost.dot_flops


def unrolled(policy, count=6):
    """A model of layers without a loop, each under a checkpoint of its own if there is a policy."""

    def layer(c, w):
        return jnp.tanh(jnp.sin(c @ w["up"]) @ w["down"])

    layer = jax.checkpoint(layer, policy=getattr(jax.checkpoint_policies, policy)) if policy else layer
    return Case(
        fn=through(layer), args=([{"up": s(64, 256), "down": s(256, 64)}] * count, s(4096, 64)), specs=(P(), P("data"))
    )


def test_what_layers_without_a_loop_keep_is_tried_where_checkpoints_say_where_they_begin():
    case = unrolled("everything_saveable")
    _, fixes, _ = tried(case, "kept-dominates")
    for policy in ("dots_saveable", "nothing_saveable"):
        plan = case.plan.with_variant(checkpoint=policy)
        assert case.program.propagate(plan).residual_bytes == unrolled(policy).report.residual_bytes
    (fix,) = [m for m in fixes if "nothing_saveable" in m.action]  # the others are elementwise: XLA makes them again
    assert fix.memory < 0 and fix.plan == plan
    assert fix.write.startswith("policy=jax.checkpoint_policies.nothing_saveable in the jax.checkpoint of test_varied")
    assert fix.write in case.program.code(fix.plan)
    # without checkpoints nothing can be tried, which is said
    _, fixes, found = tried(unrolled(""), "kept-dominates")
    assert not [m for m in fixes if m.plan.variant]
    assert any("policy=jax.checkpoint_policies.nothing_saveable" in text for text in found.by_hand)


def test_a_constraint_by_hand_holds_under_another_policy():
    case = FIRES["kept-dominates"][0]
    program, plan = case.program, case.plan.with_variant(checkpoint="nothing_saveable")
    bare = program.propagate(plan)
    (made,) = [v for v in bare.intermediates if v.label == "carry"][:1] or [bare.intermediates[0]]
    line = next(v.source.short for v in bare.intermediates if v.op == "dot_general" and v.source)
    held = program.propagate(plan.constrain("jnp.sin(carry)", P("data", "model"), line=line))
    assert held.plan.constraints
    assert held.residual_bytes <= bare.residual_bytes
    assert made.shape


def test_where_nothing_is_differentiated_there_is_nothing_to_checkpoint():
    program = sv.trace(lambda x: jnp.sum(x), s(8))
    assert not checkpoints(of_variant(program, Variant(checkpoint="nothing_saveable")))
    with pytest.raises(ShardvizError, match="no policy 'all'; there are nothing_saveable"):
        of_variant(program, Variant(checkpoint="all"))
    found = Finding("tested:here", "error", "x", suggestions=(Suggestion(kind="checkpoint", policy="dots_saveable"),))
    plan = sv.Plan("data=2", (P("data"),))
    report = replace(program.propagate(plan), diagnostics=(found,))
    (refused,) = [n for n in sv.fixes(program, report, plan=plan).rejected if "checkpoint" in n.action]
    assert "differentiates no loop" in refused.why


LLAMA = sys.modules["shardviz.gallery.llama"]
OWN = ('return jax.lax.with_sharding_constraint(x, P("data"))', 'x = jax.lax.with_sharding_constraint(x, P("data"))')


def line_of(text: str) -> str:
    (number,) = (n for n, line in enumerate(inspect.getsource(LLAMA).splitlines(), 1) if line.strip() == text)
    return f"llama.py:{number}"


@pytest.mark.parametrize(
    ("after", "written"),
    [
        ((None, ...), ("return x", OWN[1])),
        ((None, None), ("return x", "x = x")),
        ((P(("data", "model")), ...), ("return jax.lax.with_sharding_constraint(x, P(('data', 'model')))", OWN[1])),
    ],
)
def test_a_constraint_of_the_function_s_own_is_left_out_or_changed_as_by_hand(after, written, tmp_path):
    ours = sv.gallery.llama("8b", layers=2, length=256, mesh="data=4,model=2")
    changes = {(line_of(own), P("data")): new for own, new in zip(OWN, after, strict=True) if new is not ...}
    plan = ours.plan.with_variant(constraints=changes)
    by_hand = edited(LLAMA, tmp_path, *zip(OWN, written, strict=True)).llama(
        "8b", layers=2, length=256, mesh="data=4,model=2"
    )
    assert said(ours.program.propagate(plan)) == said(by_hand.program.propagate(by_hand.plan))
    assert said(ours.program.partition(plan)) == said(by_hand.program.partition(by_hand.plan))
    assert f"#   {line_of(OWN[0])}: " in ours.program.code(plan)
    # with a constraint of the plan's own besides
    held, also = (p.constrain('rms_norm(x, p["ln2"])', P("data", None, "model")) for p in (plan, by_hand.plan))
    assert said(ours.program.propagate(held)) == said(by_hand.program.propagate(also))


def test_a_plan_with_other_constraints_is_written_and_read_back():
    change = Reconstrained(line="model.py:3", before=(("a",),), after=((), ("a", "b")))
    assert change.words == "has P(None, ('a', 'b')) instead of P('a') at model.py:3"
    dropped = replace(change, after=None)
    assert dropped.words == "drops P('a') at model.py:3"
    assert Variant(constraints=(change,)).also(Variant(constraints=(dropped,))) == Variant(constraints=(dropped,))
    again = replace(change, before=change.after, after=None)
    assert Variant(constraints=(change,)).also(Variant(constraints=(again,))) == Variant(constraints=(dropped,))
    plan = sv.Plan("a=2,b=2").with_variant(constraints={("model.py:3", P("a")): P(None, ("a", "b"))})
    assert plan.variant == Variant(constraints=(change,))
    assert plan.rename_axis("b", "c").variant.constraints == (replace(change, after=((), ("a", "c"))),)
    assert plan.without_axis("b").variant.constraints == (replace(change, after=((), ("a",))),)
    wide, wider = ({"x:0": sizes} for sizes in ((3, 4), (4, 8)))
    twice = sv.Plan("a=2").with_variant(lengths=wide).with_variant(lengths=wider)
    assert twice == sv.Plan("a=2").with_variant(lengths={"x:0": (3, 8)})
    lengths = (Longer(path="x[0]", dimension=1, size=3, better=4),)
    also = replace(dropped, line="model.py:4", before=(("a",), ()))
    every = Variant(donated=("x",), lengths=lengths, checkpoint="dots_saveable", constraints=(change, also))
    assert eval(f"plan.{variant_code(every)}", {"plan": sv.Plan("a=2,b=2"), "P": P}).variant == every


def test_a_constraint_that_is_not_there_is_refused_with_those_that_are():
    example = sv.gallery.llama("8b", layers=2, length=256)
    with pytest.raises(ShardvizError, match=r"no constraint P\('x'\) at llama.py:1; it has P\('data'\) at llama.py"):
        of_variant(example.program, Variant(constraints=(Reconstrained(line="llama.py:1", before=(("x",),)),)))
    exported = jax.export.export(jax.jit(lambda x: x + 1))(s(8, 8))
    with pytest.raises(ShardvizError, match="it is an export"):
        of_variant(sv.trace(exported), Variant(constraints=(Reconstrained(line="x.py:1", before=()),)))


def test_a_constraint_under_vmap_is_left_out_too():
    def step(x, constrain=True):
        hold = lambda x: jax.lax.with_sharding_constraint(x, P("a")) if constrain else x
        return jax.vmap(lambda row: jnp.sin(hold(jnp.cos(row))))(x)

    program, by_hand = sv.trace(step, s(8, 8)), sv.trace(lambda x: step(x, False), s(8, 8))
    plan = sv.Plan("a=2")
    assert said(program.propagate(plan)) != said(by_hand.propagate(plan))
    (own,) = program.constraints
    dropped = plan.with_variant(constraints={(own.source.short, own.spec): None})
    assert said(program.propagate(dropped)) == said(by_hand.propagate(plan))


def test_of_a_line_with_several_constraints_the_one_is_left_out_that_is_named():
    """A helper that is called with this spec and that: no edit of its line alone says which call is meant."""
    fault = FAULTS["constraints that disagree"]
    program, plan = sv.trace(fault.fn, *fault.args(1)), sv.Plan(SIZES, fault.specs)
    one, other = program.constraints
    assert one.source.short == other.source.short and one.spec != other.spec
    changed = plan.with_variant(constraints={(one.source.short, one.spec): None})
    assert said(program.propagate(changed)) == said(sv.trace(fault.better, *fault.args(1)).propagate(plan))
    words = f"no constraint in place of that to {one.spec}, where it is to that and to no other spec"
    assert f"# Change constraints of your function:\n#   {one.source.short}: {words}\n" in program.code(changed)

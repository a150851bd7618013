"""What walks over a program visits nodes, not paths: of a chain of diamonds, a -> (b, c) -> a, twice as many cost about
twice as much. Counted are the lines of Python that run. And an answer that takes too long is given up."""

import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import _jax, compiler
from shardviz.compiler.matching import _laid_together
from shardviz.compiler.traffic import moved_bytes
from shardviz.errors import CompileTimeout, TraceError
from shardviz.foresee import listed_arrays

pytestmark = pytest.mark.slow

HERE = str(Path(sv.__file__).parent)
PLAN = sv.Plan("data=2,model=4", (P(None, "model"), P("data")))
TPU = "tpu v5p:2x2x2"
X = jax.ShapeDtypeStruct((64, 64), jnp.float32)
MOST = 3_000_000


def lines(run):
    """The lines of shardviz that run."""
    count = 0

    def local(frame, event, argument):
        nonlocal count
        count += event == "line"
        assert count < MOST, "it visits paths"
        return local

    sys.settrace(lambda frame, event, argument: local if frame.f_code.co_filename.startswith(HERE) else None)
    try:
        run()
    finally:
        sys.settrace(None)
    return count


def chained(step):
    def program(many):
        def fn(w, x):
            for _ in range(many):
                x = step(w, x)
            return x

        return fn

    return program


def dropout(many):
    """A mask that many operations compute from a few bytes, for two products."""

    def fn(w, x):
        bits = lax.iota(jnp.uint32, 64 * 64).reshape(64, 64)
        for _ in range(many):
            bits = (bits << 13) ^ (bits + 1)
        return jnp.sum(jnp.where(bits > 7, x @ w, 0.0) @ w.T) ** 2

    return jax.grad(fn)


def counted(many):
    """A loop whose condition doubles and halves its counter many times."""

    def again(carried):
        i = carried[0]
        for _ in range(many):
            i = (i + i) - i
        return i < 100

    return lambda w, x: lax.while_loop(again, lambda carried: (carried[0] + 1, carried[1] * 2), (0, x))[1]


PROGRAMS = {
    "elementwise": chained(lambda w, x: jnp.sin(x) + x * 2),
    "products": chained(lambda w, x: x @ w + x),
    "moved": chained(lambda w, x: x.T.astype(jnp.bfloat16).astype(jnp.float32) + x),
    "slices": chained(lambda w, x: jnp.pad(x[:-1] + x[1:], ((0, 1), (0, 0)))),
    "joined": chained(lambda w, x: jnp.concatenate([x[:32], x[32:] + x[:32]])),
    "updated": chained(lambda w, x: x.at[3].set(x[4] + x[5])),
    "loops": chained(lambda w, x: lax.scan(lambda c, _: (c + jnp.sin(c), None), x, None, length=3)[0] + x),
    "called": chained(jax.jit(lambda w, x: jnp.sin(x) + x)),
    "dropout": dropout,
    "counted": counted,
}
ANSWERS = {
    "propagated": lambda program: program.propagate(PLAN),
    "for a TPU": lambda program: program.propagate(PLAN, target=TPU),
    "timed": lambda program: sv.timeline(program.propagate(PLAN, target=TPU), TPU),
    "why": lambda program: program.why(PLAN, "result"),
    "dimensions": lambda program: program.dimensions,
}
CASES = [(program, answer) for program in PROGRAMS for answer in ("propagated", "for a TPU")]
CASES += [("slices", answer) for answer in ("timed", "why", "dimensions")]


@pytest.mark.parametrize(("program", "answer"), CASES)
def test_twice_as_many_diamonds_cost_twice_as_much(program, answer):
    programs = [sv.trace(PROGRAMS[program](many), X, X) for many in (30, 60)]
    few, many = (lines(partial(ANSWERS[answer], each)) for each in programs)
    assert many < 2.3 * few


def nested(many):
    """Functions that each call the one before twice: as many as paths, if each call is written out."""
    fn = jnp.sin
    for _ in range(many):
        fn = jax.jit(lambda x, fn=fn: fn(x) + fn(x))
    return fn


WALKS = ("constraints", "callbacks", "meshes", "equations", "checkpoint_names", "offloaded",
         "scanned", "outermost_shard_map", "under_checkpoint", "written_out")  # fmt: skip


@pytest.mark.parametrize("walk", WALKS)
def test_a_jaxpr_that_several_equations_share_is_walked_once(walk):
    few, many = (jax.make_jaxpr(nested(many))(X).jaxpr for many in (30, 60))

    def run(jaxpr):
        found = getattr(_jax, walk)(jaxpr)
        return list(found) if hasattr(found, "__next__") else found

    assert lines(lambda: run(many)) < 2.3 * lines(lambda: run(few))


@pytest.mark.parametrize("walk", ["constants", "kernel_estimates"])
def test_what_closed_jaxprs_hold_is_found_once(walk):
    few, many = (lines(lambda n=n: list(getattr(_jax, walk)(jax.make_jaxpr(nested(n))(X)))) for n in (30, 60))
    assert many < 2.3 * few


def test_what_no_compiler_can_write_out_is_refused_by_its_size():
    program = sv.trace(nested(60), X)
    with pytest.raises(TraceError, match=r"3,458,764,513,820,540,\d+ operations .* at most 1,000,000 are read"):
        program.propagate(sv.Plan("data=2"))


def fused(many):
    """Fusions in fusions, each given the same array twice."""
    inner = (
        "%f0 (a: f32[4], b: f32[4]) -> f32[4] {{\n  %a = f32[4]{{0}} parameter(0)\n  %b = f32[4]{{0}} parameter(1)\n"
    )
    text = [inner.format() + "  ROOT %r = f32[4]{0} add(%a, %b)\n}"]
    for n in range(1, many):
        head = inner.format().replace("%f0", f"%f{n}")
        calls = "".join(f"  %c{i} = f32[4]{{0}} fusion(%a, %{i}), kind=kLoop, calls=%f{n - 1}\n" for i in "ab")
        text.append(f"{head}{calls}  ROOT %r = f32[4]{{0}} add(%ca, %cb)\n}}")
    call = f"  ROOT %r = f32[4]{{0}} fusion(%x, %x), kind=kLoop, calls=%f{many - 1}\n}}"
    text.append("ENTRY %main (x: f32[4]) -> f32[4] {\n  %x = f32[4]{0} parameter(0)\n" + call)
    graph = compiler.graph_of(compiler.parse("\n".join(("HloModule m", *text))))
    return lambda: moved_bytes(graph.entry.operations[-1])


def laid(many):
    """Empty arrays, each laid together with itself."""
    joins = [f"  %c{n} = f32[0]{{0}} concatenate(%c{n - 1}, %c{n - 1}), dimensions={{0}}" for n in range(1, many)]
    ends = f"  ROOT %r = f32[0]{{0}} all-reduce(%c{many - 1}), replica_groups={{}}, to_apply=%s"
    text = ["ENTRY %main (c0: f32[0]) -> f32[0] {", "  %c0 = f32[0]{0} parameter(0)", *joins, ends, "}"]
    ins = "  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
    sums = f"%s (a: f32[], b: f32[]) -> f32[] {{\n{ins}  ROOT %r = f32[] add(%a, %b)\n}}"
    graph = compiler.graph_of(compiler.parse("\n".join(("HloModule m", sums, *text))))
    return lambda: _laid_together(graph.entry.operations[-1])


@pytest.mark.parametrize("read", [fused, laid])
def test_what_reads_hlo_visits_nodes_too(read):
    assert lines(read(60)) < 2.3 * lines(read(30))


@pytest.fixture
def endless(monkeypatch):
    """A walk that does not end, as soon as a schedule is made."""

    def walk(*_, **__):
        while True:
            time.monotonic()

    with monkeypatch.context() as patched:
        patched.setattr("shardviz.foresee.listed.alive_at", walk)
        yield patched


def test_a_walk_that_does_not_end_is_given_up_on_any_thread(endless):
    program = sv.trace(lambda w, x: x @ w, X, X)
    said = []

    def ask():
        with pytest.raises(CompileTimeout, match=r"propagating <lambda> took longer than 0.3 s .* timeout=") as raised:
            program.propagate(PLAN, timeout=0.3)
        said.append(raised.value)

    ask()
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(20)
    assert len(said) == 2
    endless.undo()
    assert program.propagate(PLAN).cost.dot_flops  # nothing is locked, and nothing comes late


def test_ctrl_c_ends_it(endless):
    program = sv.trace(lambda w, x: x @ w, X, X)
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        program.propagate(PLAN)
    endless.undo()
    assert program.propagate(PLAN).cost.dot_flops


def test_of_a_slice_that_is_read_in_two_ways_the_larger_counts():
    scope = listed_arrays.Scope(is_loop=False)

    def array(size, *operands, is_slice=False):
        node = listed_arrays.ListedArray(None, size, scope.slots[0], operands=operands)
        node.in_memory, node.is_slice = not operands, is_slice
        return node

    whole = array(100.0)
    small, large = (array(size, whole, is_slice=True) for size in (4.0, 40.0))
    assert listed_arrays.bytes_read_again(array(40.0, small, large)) == 40.0
    assert listed_arrays.bytes_read_again(array(40.0, large, small)) == 40.0
    assert listed_arrays.bytes_read_again(array(40.0, small, whole)) == 100.0
    assert listed_arrays.bytes_read_again(array(40.0, whole, array(7.0)), most=50.0) > 50.0

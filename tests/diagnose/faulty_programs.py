"""Programs and plans with a known fault, and the same as an expert would have them; no shardviz in it.

Run as `python faulty_programs.py`, what JAX and XLA say of both on eight simulated devices: a line of JSON, for each
fault the answers of the faulty and of the fixed plan.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.raw import array

SIZES = {"data": 2, "model": 4}
LARGE, SMALL = 128, 1
"""How many times as long the dimensions are: for findings, of shapes alone, and to be run."""


def mesh_around() -> Any:
    """The mesh of the call, or one without devices."""
    mesh = jax.sharding.get_abstract_mesh()
    return MESH if mesh.empty else mesh


def predict(params, x):
    h, _ = jax.lax.scan(lambda h, w: (h + jnp.tanh(h @ w["up"]) @ w["down"], None), x, params["layers"])
    return h @ params["head"]


def adam(params, state, x, y):
    grads = jax.grad(lambda p: jnp.mean((predict(p, x) - y) ** 2))(params)
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], grads)
    nu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g * g, state["nu"], grads)
    new = jax.tree.map(lambda p, m, n: p - 0.1 * m * jax.lax.rsqrt(n + 1e-3), params, mu, nu)
    return new, {"mu": mu, "nu": nu}


def in_one_state(state, x, y):
    params, rest = adam(state["model"], state["optimizer"], x, y)
    return {"model": params, "optimizer": rest}


def attending(x, w, keys):
    heads = (x @ w["in"]).reshape(x.shape[0], 1, keys.shape[2], -1)
    keys = jax.lax.dynamic_update_slice(keys, heads, (0, 3, 0, 0))
    scores = jax.nn.softmax(jnp.einsum("bqhd,bshd->bhqs", heads, keys))
    mixed = jnp.einsum("bhqs,bshd->bqhd", scores, keys).reshape(x.shape)
    return x + mixed @ w["out"], keys


def decode(weights, cache, x):
    """A step of decoding that carries its cache through the layers."""

    def layer(carry, each):
        x, cache = carry
        w, i = each
        x, keys = attending(x, w, cache[i])
        return (x, jax.lax.dynamic_update_index_in_dim(cache, keys, i, 0)), None

    return jax.lax.scan(layer, (x, cache), (weights, jnp.arange(cache.shape[0])))[0]


def decode_stacked(weights, cache, x):
    """The same, with each layer's cache read as a slice and stacked anew."""
    return jax.lax.scan(lambda x, each: attending(x, *each), x, (weights, cache))


def microbatches(w, xs):
    def body(total, x):
        return total + jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w), None

    return w - jax.lax.scan(body, jnp.zeros_like(w), xs)[0]


def summed_once(w, xs):
    """The same, with each device's own part of the gradient added up, and one sum over the devices."""

    @partial(jax.shard_map, mesh=mesh_around(), in_specs=(P(), P(None, ALL)), out_specs=P(), check_vma=False)
    def total(w, xs):
        own = w - microbatches(w, xs)
        return jax.lax.pmean(own, ALL)

    return w - total(w, xs)


def log_sum(head, x):
    return jnp.mean(jax.nn.logsumexp(x @ head, -1))


def pair(a, b, x):
    return jnp.tanh(x @ a) @ b


def experts(weights, x):
    return jnp.einsum("ecf,efd->ecd", jnp.tanh(jnp.einsum("ecd,edf->ecf", x, weights["up"])), weights["down"])


def convolved(w, x, y):
    out = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jnp.mean((out - y) ** 2)


def of_tokens(params, tokens):
    return params["embed"][tokens] @ params["up"] @ params["head"]


def looped(w, x):
    return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, None, length=8)[0]


def held(x, spec):
    """An array as a person constrains it; as it is without a spec."""
    return x if spec is None else jax.lax.with_sharding_constraint(x, NamedSharding(mesh_around(), spec))


def summed_after(spec, x):
    return jnp.sum(held(jnp.sin(x), spec), 0)


def back_again(spec, x):
    return jnp.cos(held(held(jnp.sin(x), spec), P(ALL)))


def attended(weights, x, spec=None):
    q, k, v = (held(jnp.einsum("bsd,dhk->bshk", x, weights[name]), spec) for name in "qkv")
    mixed = jnp.einsum("bhqs,bshk->bqhk", jax.nn.softmax(jnp.einsum("bqhk,bshk->bhqs", q, k)), v)
    return jnp.einsum("bshk,hkd->bsd", mixed, weights["out"])


def adapted(w, adapters, x):
    return x @ w + (x @ adapters["a"]) @ adapters["b"]


def gradient(params, x, y):
    return jax.grad(lambda p: jnp.mean((predict(p, x) - y) ** 2))(params)


def cross_entropy(spec, head, x, labels):
    logits = held(x @ head, spec)
    return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], 1)[:, 0])


def block(spec, params, x):
    return x + held(jnp.tanh(x @ params["up"]), spec) @ params["down"]


def gathered_stack(spec, layers, x):
    layers = jax.tree.map(partial(held, spec=spec), layers)
    return jax.lax.scan(lambda h, w: (h + jnp.tanh(h @ w["up"]) @ w["down"], None), x, layers)[0]


def mapped(rows, w, x):
    """A layer written for one device, that is given all rows of the batch, or its own."""
    layer = lambda w, x: jnp.tanh(x @ w)
    return jax.shard_map(layer, mesh=mesh_around(), in_specs=(P(), rows), out_specs=rows)(w, x)


def rolled(x):
    return jnp.concatenate([x[:, 1:], x[:, :1]], 1) * x


MESH = AbstractMesh(tuple(SIZES.values()), tuple(SIZES), axis_types=(AxisType.Auto,) * 2)
LAYER = {"up": P(None, "data", "model"), "down": P(None, "model", "data")}
SHARDED = {"head": P("data", "model"), "layers": LAYER}
LOOKUP = {"embed": P(None, "model"), "up": P("model"), "head": P(None, "model")}
BY_HEADS = {"q": P(None, "model"), "k": P(None, "model"), "v": P(None, "model"), "out": P("model")}
REPLICATED = {"head": P(), "layers": {"up": P(), "down": P()}}
ROWS = {"up": P(None, "data", "model"), "down": P()}
SIBLING = {"head": P("data", "model"), "layers": ROWS}
TENSOR = {"in": P(None, None, "model"), "out": P(None, "model")}
PAIRED = {"up": P(None, None, "model"), "down": P(None, "model")}
ACROSS = {"head": P("model", "data"), "layers": {"up": P(None, "model", "data"), "down": P(None, "data", "model")}}


def parameters(n: int) -> dict[str, Any]:
    return {"head": array(16 * n, 32 * n), "layers": {"up": array(4, 16 * n, 64 * n), "down": array(4, 64 * n, 16 * n)}}


def of_adam(n: int) -> tuple[Any, ...]:
    rows = 16 * n, 16 * n
    return parameters(n), {"mu": parameters(n), "nu": parameters(n)}, array(*rows), array(16 * n, 32 * n)


def of_decode(n: int) -> tuple[Any, ...]:
    weights = {"in": array(4, 16 * n, 16 * n), "out": array(4, 16 * n, 16 * n)}
    return weights, array(4, 16, 16 * n, 8, 2 * n), array(16, 16 * n)


def of_attention(n: int) -> tuple[Any, ...]:
    heads = {name: array(64 * n, 8, 8 * n) for name in "qkv"}
    return {**heads, "out": array(8, 8 * n, 64 * n)}, array(8, 4 * n, 64 * n)


def of_embedding(n: int) -> tuple[Any, ...]:
    weights = {"embed": array(1024 * n, 16 * n), "up": array(16 * n, 16 * n), "head": array(16 * n, 1024 * n)}
    return weights, array(16 * n, dtype=jnp.int32)


def of_predict(n: int) -> tuple[Any, ...]:
    return parameters(n), array(16 * n, 16 * n)


def of_loss(n: int) -> tuple[Any, ...]:
    return array(16 * n, 64 * n), array(64 * n, 16 * n), array(64 * n, dtype=jnp.int32)


def of_block(n: int) -> tuple[Any, ...]:
    return {"up": array(16 * n, 64 * n), "down": array(64 * n, 16 * n)}, array(16 * n, 16 * n)


def of_experts(n: int) -> tuple[Any, ...]:
    return {"up": array(8, 16 * n, 64 * n), "down": array(8, 64 * n, 16 * n)}, array(8, 16 * n, 16 * n)


def of_adapted(n: int) -> tuple[Any, ...]:
    return array(32 * n, 32 * n), {"a": array(32 * n, 8), "b": array(8, 32 * n)}, array(16 * n, 32 * n)


def square(n: int) -> tuple[Any, ...]:
    return array(16 * n, 16 * n), array(16 * n, 16 * n)


@dataclass(frozen=True)
class Fault:
    """A function under a plan that has a fault, and under one that has not.

    Attributes:
        rules: the rules that name the fault; none where only trying finds it.
        fn: the function.
        args: its arguments, of dimensions so many times as long.
        specs, out: the faulty plan's.
        good, good_out: the fixed plan's; None for the same specs.
        better: the fixed function, where a plan does not fix it.
        levels: where it is named; Shardy does not know of halos.
        fix: which change takes the step back to that of the fixed plan: the `first` that the finding suggests; the
            first of those that were `tried`; or none, as no plan says it and only a person can write it (`by hand`).
        line, words: of one by hand: what stands at the line that the finding names, and what an expert would write;
            no words where that helps with some compilers only, so that nothing is suggested.
        state: how many results become arguments again, the first ones, in the arguments' order.
        donated: which arguments are.
    """

    rules: tuple[str, ...]
    fn: Callable[..., Any]
    args: Callable[[int], tuple[Any, ...]]
    specs: Any
    _: KW_ONLY
    out: Any = None
    good: Any = None
    good_out: Any = None
    better: Callable[..., Any] | None = None
    levels: tuple[str, ...] = ("propagated", "partitioned")
    fix: str = "first"
    line: str = ""
    words: str = ""
    state: int = 0
    donated: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.good is None:
            object.__setattr__(self, "good", self.specs)


WHOLE_STATE = {"mu": REPLICATED, "nu": REPLICATED}
STATE = {"mu": SHARDED, "nu": SHARDED}
DATA = (P("data"), P("data"))
CACHE = P(None, "data")
HEADS = P(None, "data", None, "model")
ALL = ("data", "model")
FAULTS = {
    "replicated optimizer": Fault(
        ("unlike-parameter",),
        adam,
        of_adam,
        (SHARDED, WHOLE_STATE, *DATA),
        good=(SHARDED, STATE, *DATA),
        good_out=(SHARDED, STATE),
        state=2,
        donated=(0, 1),
    ),
    "replicated optimizer, pinned": Fault(
        ("unlike-parameter",),
        adam,
        of_adam,
        (SHARDED, WHOLE_STATE, *DATA),
        out=(SHARDED, WHOLE_STATE),
        good=(SHARDED, STATE, *DATA),
        good_out=(SHARDED, STATE),
        state=2,
        donated=(0, 1),
    ),
    "replicated optimizer in one state": Fault(
        ("unlike-parameter",),
        in_one_state,
        lambda n: ({"model": of_adam(n)[0], "optimizer": of_adam(n)[1]}, *of_adam(n)[2:]),
        ({"model": SHARDED, "optimizer": WHOLE_STATE}, *DATA),
        good=({"model": SHARDED, "optimizer": STATE}, *DATA),
        good_out={"model": SHARDED, "optimizer": STATE},
        state=1,
        donated=(0,),
    ),
    "replicated sibling": Fault(
        ("less-sharded",), predict, of_predict, (SIBLING, P("data")), good=(SHARDED, P("data"))
    ),
    "parameters come back whole": Fault(
        ("comes-back-otherwise",),
        adam,
        of_adam,
        (SHARDED, STATE, *DATA),
        out=(REPLICATED, STATE),
        good_out=(SHARDED, STATE),
        state=2,
        donated=(0, 1),
    ),
    "replicated result": Fault(
        ("result-gathered",), predict, of_predict, (SHARDED, P("data")), out=P(), good_out=P("data", "model")
    ),
    "KV cache without its heads": Fault(
        ("read-in-slices",),
        decode,
        of_decode,
        (TENSOR, CACHE, P("data")),
        out=(P("data"), CACHE),
        good=(TENSOR, HEADS, P("data")),
        good_out=(P("data"), HEADS),
        donated=(1,),
    ),
    "logits as partial sums": Fault(
        ("partial-sums",),
        log_sum,
        lambda n: (array(16 * n, 64 * n), array(16 * n, 16 * n)),
        (P("model"), P("data")),
        good=(P(None, "model"), P("data")),
    ),
    # TPUs gather float32 as bfloat16
    "columns after columns": Fault(
        ("unpaired",),
        pair,
        lambda n: tuple(
            array(rows * n, columns * n, dtype=jnp.bfloat16 if n > 1 else jnp.float32)
            for rows, columns in ((16, 64), (64, 16), (16, 16))
        ),
        (P(None, "model"), P(None, "model"), P("data")),
        good=(P(None, "model"), P("model"), P("data")),
    ),
    "experts sharded two ways": Fault(
        ("conflict",),
        experts,
        of_experts,
        ({"up": P("model"), "down": P("model")}, P("data", "model")),
        good=({"up": P("data"), "down": P("data")}, P("data", "model")),
    ),
    "target image by height": Fault(
        ("operands-unlike", "halo"),
        convolved,
        lambda n: (array(3, 3, 4, 4), array(16, 8 * n, 8 * n, 4), array(16, 8 * n, 8 * n, 4)),
        (P(), P(ALL), P(None, ALL)),
        good=(P(), P(ALL), P(ALL)),
    ),
    "images by height": Fault(
        ("halo",),
        convolved,
        lambda n: (array(3, 3, 128, 128), array(16, 8 * n, 8 * n, 128), array(16, 8 * n, 8 * n, 128)),
        (P(), P(None, ALL), P(None, ALL)),
        good=(P(), P(ALL), P(ALL)),
        levels=("partitioned",),
    ),
    "gradients summed in each microbatch": Fault(
        ("summed-each-run",),
        microbatches,
        lambda n: (array(16 * n, 16 * n), array(4, 16 * n, 16 * n)),
        (P(), P(None, ALL)),
        out=P(),
        good_out=P(),
        better=summed_once,
        fix="by hand",
        line="jnp.tanh(x @ w)",
        words="accumulate in a jax.shard_map over 'data' and 'model', and jax.lax.psum the total after the loop",
    ),
    "replicated embedding": Fault(
        ("less-sharded",), of_tokens, of_embedding, ({**LOOKUP, "embed": P()}, P("data")), good=(LOOKUP, P("data"))
    ),
    "weight gathered in a loop": Fault(("gathered-each-run",), looped, square, (P(ALL), P(ALL)), good=(P(), P(ALL))),
    "gathered to be summed": Fault(
        (),
        partial(summed_after, P()),
        lambda n: square(n)[:1],
        (P(ALL),),
        better=partial(summed_after, None),
        fix="tried",
    ),
    "constraints that disagree": Fault(
        ("there-and-back",),
        partial(back_again, P(None, ALL)),
        lambda n: square(n)[:1],
        (P(ALL),),
        better=partial(back_again, None),
        fix="tried",
    ),
    "one projection replicated": Fault(
        ("less-sharded",), attended, of_attention, ({**BY_HEADS, "k": P()}, P("data")), good=(BY_HEADS, P("data"))
    ),
    "experts replicated": Fault(
        ("read-in-slices",),
        experts,
        of_experts,
        ({"up": P(), "down": P()}, P("data", "model")),
        good=({"up": P("data"), "down": P("data")}, P("data", "model")),
    ),
    "shifted along a sharded dimension": Fault(
        ("along-shards",), rolled, lambda n: square(n)[:1], (P(None, ALL),), good=(P(ALL),), levels=("partitioned",)
    ),
    "replicated output projection": Fault(
        ("less-sharded",), of_tokens, of_embedding, ({**LOOKUP, "head": P()}, P("data")), good=(LOOKUP, P("data"))
    ),
    "layers sharded": Fault(
        ("steps-along",),
        predict,
        of_predict,
        ({**SHARDED, "layers": {"up": P("model"), "down": P("model")}}, P("data")),
        good=({**SHARDED, "layers": PAIRED}, P("data")),
    ),
    "gradients come back whole": Fault(
        ("result-gathered",),
        gradient,
        lambda n: (parameters(n), array(16 * n, 16 * n), array(16 * n, 32 * n)),
        (SHARDED, *DATA),
        out=REPLICATED,
        good_out=SHARDED,
    ),
    "logits gathered for the loss": Fault(
        (),
        partial(cross_entropy, P("data")),
        of_loss,
        (P(None, "model"), *DATA),
        better=partial(cross_entropy, P("data", "model")),
        fix="tried",
    ),
    "whole batch in a shard_map": Fault(
        ("repeated-work",),
        partial(mapped, P()),
        square,
        (P(), P(ALL)),
        better=partial(mapped, P(ALL)),
        fix="by hand",
        line="layer = lambda w, x: jnp.tanh(x @ w)",
        words="'data' and 'model' in the in_specs of the shard_map's batch and in the out_specs of its result",
    ),
    "activations without their batch": Fault(
        ("there-and-back",),
        partial(block, P(None, "model")),
        of_block,
        ({"up": P(None, "model"), "down": P("model")}, P("data")),
        better=partial(block, P("data", "model")),
        fix="tried",
    ),
    "stack gathered before its loop": Fault(
        ("stack-gathered",),
        partial(gathered_stack, P()),
        lambda n: (parameters(n)["layers"], array(16 * n, 16 * n)),
        ({"up": P(None, ALL), "down": P(None, ALL)}, P(ALL)),
        better=partial(gathered_stack, None),
        fix="tried",
    ),
    "state along another dimension": Fault(
        ("unlike-parameter",),
        adam,
        of_adam,
        (SHARDED, {"mu": ACROSS, "nu": ACROSS}, *DATA),
        out=(SHARDED, {"mu": ACROSS, "nu": ACROSS}),
        good=(SHARDED, STATE, *DATA),
        good_out=(SHARDED, STATE),
        state=2,
        donated=(0, 1),
    ),
    "batch along the tensor axis": Fault(
        ("idle-axis",),
        predict,
        of_predict,
        ({"head": P(None, "model"), "layers": PAIRED}, P("model")),
        good=({"head": P(None, "model"), "layers": PAIRED}, P("data")),
        fix="tried",
    ),
    "batch along one axis of two": Fault(
        ("idle-axis",), predict, of_predict, (REPLICATED, P("data")), good=(REPLICATED, P(ALL))
    ),
    "experts along one axis of two": Fault(
        ("idle-axis",),
        experts,
        of_experts,
        ({"up": P("data"), "down": P("data")}, P("data")),
        good=({"up": P(ALL), "down": P(ALL)}, P(ALL)),
        fix="tried",
    ),
    "KV cache comes back without its heads": Fault(
        ("comes-back-otherwise",),
        decode,
        of_decode,
        (TENSOR, HEADS, P("data")),
        out=(P("data"), CACHE),
        good_out=(P("data"), HEADS),
        donated=(1,),
    ),
    "cache stacked beside the donated one": Fault(
        ("donation-copied",),
        decode_stacked,
        of_decode,
        (TENSOR, HEADS, P("data")),
        out=(P("data"), HEADS),
        good_out=(P("data"), HEADS),
        better=decode,
        fix="by hand",
        line="jax.lax.scan(lambda x, each: attending(x, *each), x, (weights, cache))",
        donated=(1,),
    ),
    "queries, keys and values gathered": Fault(
        (), partial(attended, spec=P("data")), of_attention, (BY_HEADS, P("data")), better=attended, fix="tried"
    ),
    "sequence along the tensor axis": Fault(
        (), attended, of_attention, (BY_HEADS, P("data", "model")), good=(BY_HEADS, P("data")), fix="tried"
    ),
    "vocabulary along the batch's axis": Fault(
        ("partial-sums",),
        of_tokens,
        of_embedding,
        ({**LOOKUP, "head": P("model", "data")}, P("data")),
        good=(LOOKUP, P("data")),
        fix="tried",
    ),
    "adapters along their rank": Fault(
        (),
        adapted,
        of_adapted,
        (P(None, "model"), {"a": P(None, "model"), "b": P("model")}, P("data")),
        good=(P(None, "model"), {"a": P(), "b": P(None, "model")}, P("data")),
        fix="tried",
    ),
}


MOVED = r"f32\[([\d,]+)\]\S* (?:all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)\("
"""What a collective gives, in HLO's text."""


def answers(fn: Callable[..., Any], fault: Fault, specs: Any, out: Any, mesh: Mesh) -> dict[str, Any]:
    """What a step holds, gathers and sums, how often three steps compile, and the sum of the last one's results."""
    placed = lambda tree: jax.tree.map(lambda s: NamedSharding(mesh, s), tree, is_leaf=lambda s: isinstance(s, P))
    random = np.random.default_rng(0)
    args = jax.tree.map(lambda a: random.uniform(0.1, 0.2, a.shape).astype(a.dtype), fault.args(SMALL))
    args = jax.device_put(args, placed(specs))
    own = sum(a.addressable_shards[0].data.nbytes for a in jax.tree.leaves(args))
    with jax.set_mesh(mesh):
        step = jax.jit(fn) if out is None else jax.jit(fn, out_shardings=placed(out))
        text = step.lower(*args).compile().as_text()
        for _ in range(3):
            results = step(*args)
            first = results if fault.state > 1 else (results,)
            args = (*first[: fault.state], *args[fault.state :])
    held = sum(a.addressable_shards[0].data.nbytes for a in jax.tree.leaves(results))
    bodies = [part for part in text.split("\n\n") if part.lstrip("%").startswith(("region", "wide", "body", "closed"))]
    return {
        "argument_bytes": own,
        "result_bytes": held,
        "compiles": step._cache_size(),
        "all-gathers": text.count(" all-gather("),
        "moved": sum(4 * math.prod(map(int, dims.split(","))) for dims in re.findall(MOVED, text)),
        "sums in loops": sum(body.count(" all-reduce(") for body in bodies),
        "total": [float(jnp.sum(a)) for a in jax.tree.leaves(results)],
    }


if __name__ == "__main__":
    mesh = Mesh(np.array(jax.devices()).reshape(*SIZES.values()), tuple(SIZES))
    told = {
        name: (
            answers(fault.fn, fault, fault.specs, fault.out, mesh),
            answers(fault.better or fault.fn, fault, fault.good, fault.good_out, mesh),
        )
        for name, fault in FAULTS.items()
    }
    print(json.dumps(told))

"""Compiles programs on eight simulated devices and leaves their dumps, and what XLA says of them, in a folder.

Run in a process of its own, since it needs its own number of devices: `python programs.py FOLDER [PROGRAM ...]`.
"""

import json
import os
import sys
from functools import partial
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct as S
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib import _hlo, _jax

FOLDER, ONLY = Path(sys.argv[1]), sys.argv[2:]
FACTS = {}
F32, BF16 = jnp.float32, jnp.bfloat16


def mesh_of(axes, order=None):
    devices = np.array(jax.devices())[: int(np.prod(list(axes.values())))]
    return Mesh((devices if order is None else devices[np.array(order)]).reshape(tuple(axes.values())), tuple(axes))


def counted(module):
    """What XLA's own HloCostAnalysis says of a module, each loop's body counted once."""
    cost = _jax.hlo_module_cost_analysis(jax.devices()[0].client, module)
    return {"flops": cost.get("flops", 0.0), "bytes": cost["bytes accessed"]}


def dump(name, fn, args, in_specs, mesh, out_specs=None, donate=()):
    if ONLY and name not in ONLY:
        return
    folder = FOLDER / name
    folder.mkdir()
    named = partial(jax.tree.map, lambda spec: NamedSharding(mesh, spec), is_leaf=lambda x: isinstance(x, P))
    options = {} if out_specs is None else {"out_shardings": named(out_specs)}
    lowered = jax.jit(fn, in_shardings=named(in_specs), donate_argnums=donate, **options).lower(*args)
    dumps = {"xla_dump_to": str(folder), "xla_dump_hlo_pass_re": "spmd-partitioning|shardy-xla"}
    dumps |= {"xla_dump_hlo_as_text": True, "xla_dump_hlo_as_proto": True}
    lowered.compile(compiler_options=dumps)
    walked = {}
    for stage, pattern in (
        ("before", "*before_spmd-partitioning*.txt"),
        ("after", "*after_spmd-partitioning*.txt"),
        ("optimized", "*after_optimizations.txt"),
    ):
        (file,) = folder.glob(pattern)
        module = _hlo.hlo_module_from_text(file.read_text())
        rows = [
            [
                c.name,
                i.name,
                i.opcode.name[1:].lower() if hasattr(i, "opcode") else None,
                str(i.shape) if hasattr(i, "shape") else None,
            ]
            for c in module.computations()
            for i in c.instructions()
        ]
        walked[stage] = {"rows": rows, "file": str(file), "cost": counted(module)}
    (assignment,), (live,) = folder.glob("*optimizations-buffer-assignment.txt"), folder.glob("*-live-range.txt")
    (proto,) = folder.glob("*after_optimizations.hlo.pb")
    FACTS[name] = {
        "mesh": dict(mesh.shape),
        "walked": walked,
        "assignment": str(assignment),
        "live": str(live),
        "proto": str(proto),
        "pointer": POINTER,
    }


# what XLA takes an element of a tuple for, besides its bytes
PAIR = """HloModule pair

ENTRY %main (a: f32[]) -> (f32[], f32[]) {
  %a = f32[] parameter(0)
  ROOT %pair = (f32[], f32[]) tuple(%a, %a)
}
"""
POINTER = counted(_hlo.hlo_module_from_text(PAIR))["bytes"] / 2

M = mesh_of({"data": 2, "model": 4})


def mlp(params, x):
    def loss(p):
        return jnp.sum((jnp.tanh(x @ p["w1"]) @ p["w2"]) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g.astype(p.dtype), params, grads)


MLP_SPECS = ({"w1": P("data", "model"), "w2": P("model", "data")}, P("data"))
for dtype in (F32, BF16):
    weights = {"w1": S((256, 512), dtype), "w2": S((512, 256), dtype)}
    dump(f"mlp_{dtype.__name__}", mlp, (weights, S((64, 256), dtype)), MLP_SPECS, M, donate=0)
dump("mlp_1x8", mlp, (weights, S((64, 256), BF16)), MLP_SPECS, mesh_of({"data": 1, "model": 8}))

LAYERS, WIDTH, HIDDEN, BATCH, TOKENS, HEADS, DEPTH, VOCABULARY = 80, 256, 512, 8, 64, 8, 32, 1024


def llama(params, tokens):
    def layer(h, w):
        n = h * lax.rsqrt(jnp.mean(h.astype(F32) ** 2, -1, keepdims=True) + 1e-5).astype(h.dtype)
        q, k, v = (jnp.einsum("btd,dhk->bthk", n, w[name]) for name in ("wq", "wk", "wv"))
        s = jax.nn.softmax(jnp.einsum("bqhk,bshk->bhqs", q, k).astype(F32), -1).astype(h.dtype)
        h = h + jnp.einsum("bthk,hkd->btd", jnp.einsum("bhqs,bshk->bqhk", s, v), w["wo"])
        h = h + (jax.nn.silu(h @ w["w1"]) * (h @ w["w3"])) @ w["w2"]
        return lax.with_sharding_constraint(h, NamedSharding(M, P("data", None, None))), None

    def loss(p):
        h, _ = lax.scan(jax.checkpoint(layer), p["emb"][tokens], p["layers"])
        logits = jax.nn.log_softmax((h @ p["head"]).astype(F32))
        return -jnp.mean(jnp.take_along_axis(logits, tokens[..., None], -1))

    value, grads = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: (p - 0.1 * g).astype(p.dtype), params, grads)


heads, specs = P(None, "data", "model"), P(None, "data", "model")
LLAMA = {
    "emb": S((VOCABULARY, WIDTH), BF16),
    "head": S((WIDTH, VOCABULARY), BF16),
    "layers": {
        **{name: S((LAYERS, WIDTH, HEADS, DEPTH), BF16) for name in ("wq", "wk", "wv")},
        "wo": S((LAYERS, HEADS, DEPTH, WIDTH), BF16),
        "w1": S((LAYERS, WIDTH, HIDDEN), BF16),
        "w3": S((LAYERS, WIDTH, HIDDEN), BF16),
        "w2": S((LAYERS, HIDDEN, WIDTH), BF16),
    },
}
LLAMA_SPECS = {
    "emb": P("model", "data"),
    "head": P("data", "model"),
    "layers": {
        **dict.fromkeys(("wq", "wk", "wv", "w1", "w3"), P(None, "data", "model")),
        "wo": P(None, "model", None, "data"),
        "w2": P(None, "model", "data"),
    },
}
dump("llama", llama, (LLAMA, S((BATCH, TOKENS), jnp.int32)), (LLAMA_SPECS, P("data")), M, donate=0)


def shard_mapped(x, y):
    @partial(
        jax.shard_map,
        mesh=M,
        in_specs=P("data", "model"),
        check_vma=False,
        out_specs=(P("data"), P(None, "data", "model"), P("data", "model"), P(("data", "model")), P("data", "model")),
    )
    def inner(x):
        return (
            lax.psum(x, "model"),
            lax.all_gather(x, "data"),
            lax.ppermute(x, "data", [(0, 1), (1, 0)]),
            lax.psum_scatter(x, "model", tiled=True),
            lax.all_to_all(x, "model", 0, 0, tiled=True),
        )

    return *inner(x), x @ y


dump("shard_map", shard_mapped, (S((16, 16), F32),) * 2, (P("data", "model"), P("model")), M)


def shard_map_grad(ws, x):
    def body(h, w):
        @partial(jax.shard_map, mesh=M, in_specs=(P("data", "model"), P("model", None)), out_specs=P("data", None))
        def layer(h, w):
            return jnp.tanh(lax.psum(h @ w, "model"))

        return layer(h, w), None

    return jax.grad(lambda ws: jnp.sum(lax.scan(jax.checkpoint(body), x, ws)[0] ** 2))(ws)


dump("shard_map_grad", shard_map_grad, (S((5, 64, 64), F32), S((16, 64), F32)), (P(None, "model"), P("data")), M)


def partly_manual(x, w):
    inner = jax.shard_map(
        lambda x, w: lax.psum(x @ w, "model"),
        mesh=M,
        in_specs=(P(None, "model"), P("model", None)),
        out_specs=P(),
        axis_names={"model"},
    )
    return inner(x, w)


X, W = S((16, 64), F32), S((64, 64), F32)
XW = (P("data"), P("model", "data"))
dump("partly_manual", partly_manual, (X, W), (P("data", "model"), P("model", "data")), M)


def until(n, x, w):
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.tanh(c[1] @ w)), (0, x))


dump("while_dynamic", until, (S((), jnp.int32), X, W), (P(), *XW), M)
dump(
    "while_down",
    lambda x, w: lax.while_loop(lambda c: c[0] > 3, lambda c: (c[0] - 4, jnp.tanh(c[1] @ w)), (50, x)),
    (X, W),
    XW,
    M,
)
dump("cond", lambda b, x, w: lax.cond(b, lambda x: x @ w, lambda x: x + 1, x), (S((), jnp.bool_), X, W), (P(), *XW), M)


def nested(x, w):
    def outer(h, wi):
        return lax.scan(lambda h, _: (jnp.tanh(h @ wi), None), h, None, length=3)[0], None

    return lax.fori_loop(2, 7, lambda i, h: lax.scan(outer, h, w)[0], x)


dump("nested", nested, (X, S((5, 64, 64), F32)), (P("data"), P(None, "model", "data")), M)
dump(
    "reverse_unrolled",
    lambda x, w: lax.scan(lambda h, wi: (jnp.tanh(h @ wi), h.sum()), x, w, reverse=True, unroll=2),
    (X, S((6, 64, 64), F32)),
    (P("data"), P(None, "model", "data")),
    M,
)
dump(
    "uneven",
    lambda x, w: (
        jnp.sin(jnp.concatenate([x @ w, x @ w])[:10]).sum(1),
        (x @ w)[:, :6],
        jnp.pad(x @ w, ((0, 1), (0, 0))),
    ),
    (S((8, 12), F32), S((12, 8), F32)),
    (P("data"), P(None, "model")),
    M,
)
dump(
    "three_axes",
    lambda a, b, c: (a @ b) @ c,
    (S((16, 16), F32),) * 3,
    (P("x", "y"), P("z", ("x", "y")), P(("y", "x"))),
    mesh_of({"x": 2, "y": 2, "z": 2}),
    out_specs=P(("z", "x"), "y"),
)
dump(
    "permuted",
    lambda a, b: (a @ b).sum(0),
    (S((16, 16), F32),) * 2,
    (P("data", "model"), P("model")),
    mesh_of({"data": 2, "model": 4}, [7, 6, 5, 4, 0, 2, 1, 3]),
)
dump("resharded", lambda a: a * 2, (S((16, 16), F32),), (P("data", "model"),), M, out_specs=P("model", "data"))
dump(
    "convolution",
    lambda a, b: lax.conv(a, b, (1, 1), "SAME"),
    (S((8, 16, 32, 32), F32), S((32, 16, 3, 3), F32)),
    (P("data"), P("model")),
    M,
)

(FOLDER / "facts.json").write_text(json.dumps(FACTS))

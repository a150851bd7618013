"""Every hand-parallelised model of the gallery, small, run on eight simulated devices and on one.

`python run_models.py` prints one line of JSON: for each model the loss on eight devices and on one, and the largest
error of the parameters' change, as a part of the largest change.
"""

import json
import os
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from shardviz import gallery
from shardviz.gallery.llama import attention
from shardviz.gallery.moe import AUXILIARY
from shardviz.gallery.pipeline import block
from shardviz.gallery.resnet import train_step as resnet_step


def arrays(tree, scale=0.3):
    leaves, structure = jax.tree.flatten(tree)
    random = np.random.default_rng(0)
    return jax.tree.unflatten(
        structure, [jnp.asarray(random.standard_normal(a.shape) * scale, a.dtype) for a in leaves]
    )


def change(new, old):
    return [
        np.asarray(a, np.float64) - np.asarray(b, np.float64)
        for a, b in zip(*map(jax.tree.leaves, (new, old)), strict=True)
    ]


def compared(losses, ours, theirs):
    worst = max(np.abs(a - b).max() for a, b in zip(ours, theirs, strict=True))
    return {"losses": [float(loss) for loss in losses], "error": float(worst / max(np.abs(b).max() for b in theirs))}


def shard_mapped(example, loss):
    """On eight devices; and a step of the same size against the gradient of `loss`, which knows no devices."""
    mesh = jax.make_mesh(
        tuple(example.mesh.values()), tuple(example.mesh), axis_types=(AxisType.Auto,) * len(example.mesh)
    )
    args = arrays(example.args)
    shardings = jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), example.in_specs, is_leaf=lambda s: isinstance(s, PartitionSpec)
    )
    with jax.set_mesh(mesh):
        params, found = jax.jit(example.fn, in_shardings=shardings)(*args)
    expected, grads = jax.jit(jax.value_and_grad(loss))(*args)
    return compared(
        (found, expected), change(params, args[0]), [-1e-3 * np.asarray(g, np.float64) for g in jax.tree.leaves(grads)]
    )


def ring_loss(p, x, y):
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name]) for name in ("wq", "wk", "wv"))
    return jnp.mean((x + jnp.einsum("bthk,hkd->btd", attention(q, k, v), p["wo"]) - y) ** 2)


def pipeline_loss(layers, x, y):
    for i in range(layers["gate"].shape[0]):
        x = block(x, {name: w[i] for name, w in layers.items()})
    return jnp.mean((x - y) ** 2)


def moe_loss(p, x, y, devices=8, top=2):
    """Every expert on every token, and then only those that the router chose; no place is ever too full."""
    experts = p["router"].shape[1]
    outs, busy = [], []
    for part in jnp.split(x, devices):
        belief = jax.nn.softmax(part @ p["router"], axis=-1)
        weight, chosen = jax.lax.top_k(belief, top)
        weight = weight / weight.sum(-1, keepdims=True)
        hidden = jax.nn.silu(jnp.einsum("nd,edf->enf", part, p["gate"])) * jnp.einsum("nd,edf->enf", part, p["up"])
        all_of_them = jnp.einsum("enf,efd->end", hidden, p["down"])
        rows = jnp.arange(len(part))
        outs.append(sum(weight[:, i, None] * all_of_them[chosen[:, i], rows] for i in range(top)))
        share = jnp.stack([(chosen == e).sum() for e in range(experts)]) / (len(part) * top)
        busy.append(experts * jnp.sum(share * belief.mean(0)))
    return jnp.mean((x + jnp.concatenate(outs) - y) ** 2) + AUXILIARY * jnp.mean(jnp.stack(busy))


def resnet():
    example = gallery.resnet(14, batch=2, size=32, classes=10, channels=4, mesh={"batch": 8}, dtype=jnp.float64)
    state, images, labels = arrays(example.args, 0.05)
    state = jax.tree.map(lambda a: jnp.broadcast_to(a[:1], a.shape), state)  # copies
    labels = jnp.arange(labels.size).reshape(labels.shape) % 10
    before = jax.tree.map(np.asarray, state["params"])
    expected, loss = jax.jit(jax.vmap(resnet_step, axis_name="batch"))(state, images, labels)
    after, found = example.fn(state, images, labels)
    return compared((found[0], loss[0]), change(after["params"], before), change(expected["params"], before))


if __name__ == "__main__":
    f64 = {"dtype": jnp.float64}
    print(
        json.dumps(
            {
                "ring": shard_mapped(
                    gallery.ring(batch=2, length=32, heads=4, head_dim=8, mesh={"data": 2, "seq": 4}, **f64), ring_loss
                ),
                "pipeline": shard_mapped(
                    gallery.pipeline(
                        layers=8, d_model=16, d_ff=32, microbatches=4, batch=32, mesh={"data": 2, "stage": 4}, **f64
                    ),
                    pipeline_loss,
                ),
                "moe": shard_mapped(
                    gallery.moe(
                        experts=8, d_model=16, d_ff=32, tokens=64, factor=8.0, mesh={"data": 2, "expert": 4}, **f64
                    ),
                    moe_loss,
                ),
                "resnet": resnet(),
            }
        )
    )

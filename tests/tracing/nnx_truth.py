"""A decoder block in flax.nnx with an optimizer; and, run as a script, what flax and JAX themselves say of its step.

`python nnx_truth.py FOLDER`: no shardviz in it. For each way of giving the plan and each mesh it compiles the step with
simulated devices, runs it, and writes the partitioner's snapshot, the sharding and the value of every variable after
the step, and the same values from a single device.
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import PartitionSpec as P

MESHES = [{"data": 1, "model": 2}, {"data": 2, "model": 4}]
WAYS = ["metadata", "in_shardings", "tree mode"]
D, FF, HEADS, BATCH, LENGTH = 32, 64, 8, 16, 4
X, Y = (BATCH, LENGTH, D), (BATCH, LENGTH, D)


def cut(names):
    return nnx.with_partitioning(nnx.initializers.normal(0.1), names)


class Mlp(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(D, FF, rngs=rngs, kernel_init=cut((None, "model")), bias_init=cut(("model",)))
        self.down = nnx.Linear(FF, D, rngs=rngs, use_bias=False, kernel_init=cut(("model", None)))
        self.drop = nnx.Dropout(0.0, rngs=rngs)

    def __call__(self, x):
        return self.drop(self.down(nnx.gelu(self.up(x))))


class Attention(nnx.Module):
    def __init__(self, rngs):
        names = (None, "model")
        self.wq, self.wk, self.wv = (nnx.Linear(D, D, rngs=rngs, use_bias=False, kernel_init=cut(names)) for _ in "qkv")
        self.wo = nnx.Linear(D, D, rngs=rngs, use_bias=False, kernel_init=cut(("model", None)))

    def __call__(self, x):
        q, k, v = (w(x).reshape(*x.shape[:2], HEADS, D // HEADS) for w in (self.wq, self.wk, self.wv))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (D // HEADS) ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e9)
        return self.wo(jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norms = nnx.List([nnx.RMSNorm(D, rngs=rngs) for _ in range(2)])
        self.attn, self.mlp = Attention(rngs), Mlp(rngs)
        self.seen = nnx.BatchStat(jnp.zeros((D,)))

    def __call__(self, x):
        self.seen[...] = 0.9 * self.seen[...] + 0.1 * x.mean((0, 1))
        x = x + self.attn(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Decoder(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([Block(rngs) for _ in range(1)])

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def make():
    model = Decoder(nnx.Rngs(0))
    return model, nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param)


def train_step(model, optimizer, x, y):
    def loss(model):
        return ((model(x) - y) ** 2).mean()

    value, grads = nnx.value_and_grad(loss)(model)
    optimizer.update(model, grads)
    return value


def ends_with(*suffix):
    return lambda path, value: path[-len(suffix) :] == suffix


def filters(sharding):
    """Which variables are cut how, as (filter, sharding); the first that catches holds."""
    return [
        (ends_with("down", "kernel"), sharding(P("model", "data"))),
        (ends_with("up", "kernel"), sharding(P("data", "model"))),
        ((ends_with("wo", "kernel"), ends_with("wq", "kernel")), sharding(P("data"))),
        (ends_with("count"), sharding(P())),
        (nnx.Param, sharding(P())),
        (..., sharding(P())),
    ]


def wrapped(way, sharding):
    """The step as a person wraps it; `sharding` makes one of a spec."""
    if way == "metadata":
        return train_step
    if way == "tree mode":
        shardings = (sharding(P()), sharding(P()), sharding(P("data")), sharding(P("data")))
        return nnx.jit(train_step, in_shardings=shardings, donate_argnames=("optimizer",), graph=False)
    both = nnx.StateSharding(filters(sharding))
    return nnx.jit(
        train_step, in_shardings=(both, both, sharding(P("data")), sharding(P("data"))), donate_argnums=(0, 1)
    )


def flat(model, optimizer):
    state = nnx.to_flat_state(nnx.split((model, optimizer))[1])
    roots = ("model", "optimizer")
    text = lambda k: f"[{k}]" if isinstance(k, int) else f".{k}"
    return {roots[path[0]] + "".join(map(text, path[1:])): held for path, held in state}


def data():
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in (X, Y))


def plain(value):
    value = jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value
    return np.asarray(value, np.float64).ravel().tolist()


def entries(sharding):
    return [[] if e is None else [e] if isinstance(e, str) else list(e) for e in sharding.spec]


def on_mesh(held):
    return hasattr(held.get_value().sharding, "spec")  # what a step neither takes sharded nor gives stays where it is


def run(way, mesh, folder):
    from jax.sharding import AxisType, Mesh, NamedSharding

    devices = np.array(jax.devices()[: int(np.prod(list(mesh.values())))]).reshape(tuple(mesh.values()))
    mesh = Mesh(devices, tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh))
    with nnx.use_eager_sharding(False):
        model, optimizer = make()
    batch = data()
    put = lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec))
    if way == "metadata":
        for held in flat(model, optimizer).values():
            held.set_value(put(held.get_value(), nnx.get_partition_spec(held).get_value()))
        batch = tuple(put(x, P("data")) for x in batch)
    step = wrapped(way, lambda spec: NamedSharding(mesh, spec))
    step = nnx.jit(step) if way == "metadata" else step
    folder.mkdir()
    options = {"xla_dump_to": str(folder), "xla_dump_hlo_pass_re": "spmd-partitioning"}
    step = step.lower(model, optimizer, *batch).compile(options)
    snapshot = next(f for f in folder.glob("*.txt") if "after_spmd-partitioning" in f.name).read_text()
    loss = step(model, optimizer, *batch)
    after = flat(model, optimizer)
    facts = {
        "specs": {"result": entries(loss.sharding)}
        | {n: entries(v.get_value().sharding) for n, v in after.items() if on_mesh(v)},
        "values": {"result": plain(loss)} | {n: plain(v.get_value()) for n, v in after.items()},
        "snapshot": snapshot,
    }
    (folder.parent / f"{folder.name}.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with nnx.use_eager_sharding(False):
        model, optimizer = make()
    loss = train_step(model, optimizer, *data())
    values = {"result": plain(loss)} | {n: plain(v.get_value()) for n, v in flat(model, optimizer).items()}
    (folder / "alone.json").write_text(json.dumps(values))
    for mesh in MESHES:
        for way in WAYS:
            run(way, mesh, folder / f"{way}@{mesh['data']}x{mesh['model']}")

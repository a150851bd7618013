"""Scripts for 8 devices, each a function, that are run dry and for real: both must agree.

`python -m tests.runs.scripts_on_8 NAME ...` prints, as JSON, what each run dispatched: of every program on several
devices its name, the bytes alive before it, and shape, dtype and sharding of its results.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import traceback

import jax

if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)

import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardviz import _jax

SCRIPTS = {}


def script(fn):
    SCRIPTS[fn.__name__] = fn
    return fn


def mesh_of(*shape, names=("data", "model"), types=None, devices=None):
    devices = jax.devices()[: np.prod(shape)] if devices is None else devices
    names = names[: len(shape)]
    return Mesh(np.array(devices).reshape(shape), names, axis_types=types or (AxisType.Auto,) * len(shape))


def weights(mesh):
    return {"w1": ones(mesh, (16, 64), None, "model"), "w2": ones(mesh, (64, 16), "model", None)}


def ones(mesh, shape, *spec):
    return jax.device_put(np.ones(shape, np.float32), NamedSharding(mesh, P(*spec)))


def loss(params, x):
    return jnp.mean((jax.nn.relu(x @ params["w1"]) @ params["w2"] - x) ** 2)


@script
def plain_training():
    mesh = mesh_of(2, 4)
    step = jax.jit(lambda p, x: jax.tree.map(lambda a, g: a - 0.1 * g, p, jax.grad(loss)(p, x)))
    params = weights(mesh)
    for _ in range(3):
        params = step(params, ones(mesh, (8, 16), "data"))


@script
def donated_state():
    mesh = mesh_of(2, 4)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(params, x):
        value, grads = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(lambda a, g: a - 0.1 * g, params, grads), value

    params = weights(mesh)
    for _ in range(3):
        params, value = step(params, ones(mesh, (8, 16), "data"))
        float(value)


@script
def out_shardings_given():
    mesh = mesh_of(2, 4)
    sharding = NamedSharding(mesh, P("model", "data"))
    init = jax.jit(lambda key: jax.random.normal(key, (64, 16)), out_shardings=sharding)
    w = init(jax.random.key(0))
    jax.jit(lambda w: (w.T @ w, w.sum()), in_shardings=sharding)(w)


@script
def donated_and_not_usable():
    mesh = mesh_of(8, names=("data",))
    x = jax.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, P("data")))
    jax.jit(lambda x: x.sum(), donate_argnums=0)(x)
    jax.jit(lambda y: y * 2)(x * 2 if not x.is_deleted() else jnp.ones((8, 4)))


@script
def constraints_inside():
    mesh = mesh_of(2, 4)

    @jax.jit
    def forward(params, x):
        h = jax.lax.with_sharding_constraint(x @ params["w1"], NamedSharding(mesh, P("data", "model")))
        return h, (h @ params["w2"]).astype(jnp.bfloat16)

    forward(weights(mesh), np.ones((8, 16), np.float32))


@script
def set_mesh_and_bare_specs():
    mesh = mesh_of(2, 4)
    with jax.set_mesh(mesh):
        x = jax.jit(lambda: jax.lax.with_sharding_constraint(jnp.ones((8, 16)), P("data", "model")))()
        jax.jit(lambda x: x.T + 1)(x)


@script
def explicit_axes():
    mesh = mesh_of(2, 4, types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        x = jax.device_put(np.ones((8, 16), np.float32), P("data", None))
        w = jax.device_put(np.ones((16, 32), np.float32), P(None, "model"))
        y = jax.jit(lambda x, w: jnp.sin(x @ w))(x, w)
        jax.jit(lambda y: y.sum(0))(y)


@script
def mapped_with_shard_map():
    mesh = mesh_of(8, names=("data",))

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("data"), out_specs=(P("data"), P()))
    def normalise(x):
        total = jax.lax.psum(x.sum(), "data")
        return x / total, total

    x = jax.device_put(np.ones((16, 4), np.float32), NamedSharding(mesh, P("data")))
    for _ in range(2):
        x, _ = normalise(x)


@script
def pmapped():
    step = jax.pmap(lambda x: jax.lax.pmean(x * 2, "i"), axis_name="i")
    x = step(np.ones((8, 4), np.float32))
    step(x)


@script
def two_meshes():
    one = mesh_of(4, names=("data",))
    other = mesh_of(2, 2, devices=jax.devices()[4:])
    x = jax.device_put(np.ones((8, 16), np.float32), NamedSharding(one, P("data")))
    y = jax.jit(jnp.sin)(x)
    z = jax.device_put(y, NamedSharding(other, P("data", "model")))
    jax.jit(lambda z: z @ z.T)(z)


@script
def compiled_ahead():
    mesh = mesh_of(2, 4)
    params = weights(mesh)
    x = jax.ShapeDtypeStruct((8, 16), np.float32, sharding=NamedSharding(mesh, P("data")))
    compiled = jax.jit(jax.value_and_grad(loss)).lower(params, x).compile()
    compiled(params, ones(mesh, (8, 16), "data"))


@script
def gradient_accumulation():
    mesh = mesh_of(2, 4)

    @jax.jit
    def step(params, batches):
        def add(total, x):
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, x)), None

        total, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), batches)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, total)

    batches = jax.device_put(np.ones((3, 8, 16), np.float32), NamedSharding(mesh, P(None, "data")))
    params = weights(mesh)
    for _ in range(2):
        params = step(params, batches)


@script
def evaluation_between_steps():
    mesh = mesh_of(2, 4)
    step = jax.jit(lambda p, x: jax.tree.map(lambda a, g: a - 0.1 * g, p, jax.grad(loss)(p, x)), donate_argnums=0)
    evaluate, params = jax.jit(loss), weights(mesh)
    for i in range(4):
        x = ones(mesh, (8, 16), "data")
        params = step(params, x)
        if i % 2:
            print("loss", evaluate(params, x), file=sys.stderr)


@script
def serving_with_a_cache():
    mesh = mesh_of(2, 4)
    w = ones(mesh, (16, 16), None, "model")

    @jax.jit
    def prefill(w, prompt):
        cache = jnp.zeros((prompt.shape[0], 12, 16)).at[:, :8].set(prompt @ w)
        return cache, cache[:, 7]

    @functools.partial(jax.jit, donate_argnums=1)
    def decode(w, cache, last, at):
        new = last @ w + cache.mean(1)
        return jax.lax.dynamic_update_index_in_dim(cache, new, at, 1), new

    cache, last = prefill(w, ones(mesh, (4, 8, 16), "data"))
    for at in range(8, 12):
        cache, last = decode(w, cache, last, jnp.int32(at))


@script
def pipeline_of_two_stages():
    mesh = mesh_of(8, names=("stage",))

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("stage"), P()), out_specs=P("stage"))
    def stages(w, x):
        def tick(x, _):
            x = jnp.tanh(x @ w[0])
            return jax.lax.ppermute(x, "stage", [(i, (i + 1) % 8) for i in range(8)]), None

        x, _ = jax.lax.scan(tick, jax.lax.pcast(x, "stage", to="varying"), None, length=8)
        return x[None]

    w = jax.device_put(np.ones((8, 4, 4), np.float32), NamedSharding(mesh, P("stage")))
    stages(w, jnp.ones((2, 4)))


@script
def keys_out_of_a_program():
    mesh = mesh_of(8, names=("data",))
    sharding = NamedSharding(mesh, P("data"))
    keys = jax.jit(lambda k: jax.random.split(k, 8), out_shardings=sharding)(jax.random.key(0))
    jax.jit(lambda keys: jax.vmap(lambda k: jax.random.normal(k, (4,)))(keys))(keys)


@script
def from_callbacks_and_local_data():
    mesh = mesh_of(2, 4)
    data = np.arange(128, dtype=np.float32).reshape(8, 16)
    x = jax.make_array_from_callback((8, 16), NamedSharding(mesh, P("data", "model")), lambda i: data[i])
    y = jax.make_array_from_process_local_data(NamedSharding(mesh, P("data")), data)
    jax.jit(lambda x, y: x + y)(x, y)


@script
def eager_operations():
    mesh = mesh_of(2, 4)
    x = jax.device_put(np.ones((8, 16), np.float32), NamedSharding(mesh, P("data", "model")))
    y = jnp.sin(x) + 1
    z = y.reshape(16, 8) @ y
    jnp.concatenate([z, z]).sum()


@script
def uneven_results():
    mesh = mesh_of(8, names=("data",))
    x = jax.device_put(np.ones((16, 5), np.float32), NamedSharding(mesh, P("data")))
    jax.jit(lambda x: (x[:10], x.reshape(-1), x.T))(x)


@script
def linen_module():
    import flax.linen as nn

    mesh = mesh_of(2, 4)

    class Mlp(nn.Module):
        @nn.compact
        def __call__(self, x):
            kernel = nn.with_partitioning(nn.initializers.lecun_normal(), (None, "model"))
            x = nn.relu(nn.Dense(64, kernel_init=kernel)(x))
            return nn.Dense(16, kernel_init=nn.with_partitioning(nn.initializers.lecun_normal(), ("model", None)))(x)

    model, x = Mlp(), np.ones((8, 16), np.float32)
    specs = nn.get_partition_spec(jax.eval_shape(model.init, jax.random.key(0), x))
    shardings = jax.tree.map(lambda s: NamedSharding(mesh, s), specs)
    params = jax.jit(model.init, out_shardings=shardings)(jax.random.key(0), x)
    jax.jit(model.apply)(params, jax.device_put(x, NamedSharding(mesh, P("data"))))


@script
def nnx_module():
    from flax import nnx

    mesh = mesh_of(2, 4)
    with jax.set_mesh(mesh):
        kernel = nnx.with_partitioning(nnx.initializers.lecun_normal(), (None, "model"))
        model = nnx.Linear(16, 64, rngs=nnx.Rngs(0), kernel_init=kernel)

        @nnx.jit
        def step(model, x):
            def mean_square(model):
                return jnp.mean(model(x) ** 2)

            value, grads = nnx.value_and_grad(mean_square)(model)
            nnx.update(model, jax.tree.map(lambda p, g: p - 0.1 * g, nnx.state(model, nnx.Param), grads))
            return value

        x = ones(mesh, (8, 16), "data")
        for _ in range(2):
            step(model, x)


@script
def equinox_module():
    import equinox as eqx

    mesh = mesh_of(2, 4)
    model = eqx.nn.MLP(16, 16, 64, 2, key=jax.random.key(0))
    everywhere = NamedSharding(mesh, P())
    model = eqx.filter_shard(model, everywhere)

    @eqx.filter_jit
    def step(model, x):
        value, grads = eqx.filter_value_and_grad(lambda m: jnp.mean(jax.vmap(m)(x) ** 2))(model)
        return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, grads)), value

    for _ in range(2):
        model, _ = step(model, ones(mesh, (8, 16), "data"))


@script
def resharded_by_jit():
    mesh = mesh_of(2, 4)
    x = jax.device_put(np.ones((8, 16), np.float32), NamedSharding(mesh, P("data", "model")))
    moved = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, P("model")))(x)
    jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, P()))(moved)


@script
def checkpointed_layers():
    mesh = mesh_of(2, 4)
    params = jax.tree.map(lambda a: jnp.stack([a, a]), weights(mesh))

    @jax.jit
    def grads(params, x):
        layer = jax.checkpoint(lambda x, p: (x + jax.nn.gelu(x @ p["w1"]) @ p["w2"], None))
        return jax.grad(lambda p: jax.lax.scan(layer, x, p)[0].sum())(params)

    grads(params, ones(mesh, (8, 16), "data"))


@script
def optimizer_of_nnx():
    import optax
    from flax import nnx

    mesh = mesh_of(2, 4)
    with jax.set_mesh(mesh):

        @nnx.jit
        def create():
            kernel = nnx.with_partitioning(nnx.initializers.lecun_normal(), (None, "model"))
            model = nnx.Linear(16, 64, rngs=nnx.Rngs(0), kernel_init=kernel)
            state = nnx.state(model)
            nnx.update(model, jax.lax.with_sharding_constraint(state, nnx.get_partition_spec(state)))
            return model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

        @nnx.jit
        def train_step(model, optimizer, x):
            value, grads = nnx.value_and_grad(lambda model: jnp.mean(model(x) ** 2))(model)
            optimizer.update(model, grads)
            return value

        model, optimizer = create()
        for _ in range(2):
            train_step(model, optimizer, ones(mesh, (8, 16), "data"))


@script
def adam_with_master_weights():
    import optax

    mesh = mesh_of(2, 4)
    params = weights(mesh)
    optimizer = optax.adamw(1e-3)
    state = jax.jit(optimizer.init)(params)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, x):
        half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), jax.grad(loss)(half, x.astype(jnp.bfloat16)))
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(3):
        params, state = step(params, state, ones(mesh, (8, 16), "data"))


@script
def experts_and_all_to_all():
    mesh = mesh_of(8, names=("expert",))

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("expert"), P("expert")), out_specs=P("expert"))
    def layer(w, x):
        sent = jax.lax.all_to_all(x, "expert", 1, 0, tiled=True)
        return jax.lax.all_to_all(jnp.einsum("td,edf->tf", sent[..., 0, :], w)[:, None], "expert", 0, 1, tiled=True)

    layer(ones(mesh, (8, 4, 4), "expert"), ones(mesh, (64, 8, 4), "expert"))


@script
def memory_of_the_host():
    mesh = mesh_of(8, names=("data",))
    host = NamedSharding(mesh, P("data"), memory_kind="pinned_host")
    x = jax.device_put(np.ones((8, 4), np.float32), host)
    y = jax.device_put(x, NamedSharding(mesh, P("data")))
    jax.device_put(jax.jit(jnp.sin)(y), host)


@script
def arguments_that_nobody_places():
    mesh = mesh_of(2, 4)
    step = jax.jit(lambda w, x, rate, flag: w - rate * (x.T @ (x @ w)) * flag, static_argnums=3)
    step(ones(mesh, (16, 16), None, "model"), np.ones((8, 16), np.float32), 0.1, 2)
    step(ones(mesh, (16, 16), None, "model"), jnp.ones((8, 16)), jnp.float32(0.1), 2)


@script
def an_exported_program():
    mesh = mesh_of(2, 4)
    x = ones(mesh, (8, 16), "data", "model")
    exported = jax.export.export(jax.jit(lambda x: jnp.tanh(x) @ x.T))(x)
    jax.jit(exported.call)(x)


@script
def called_from_threads():
    from concurrent.futures import ThreadPoolExecutor

    mesh = mesh_of(2, 4)
    x = ones(mesh, (8, 16), "data")
    step = jax.jit(lambda x: x * 2)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(step, x).result()
    step(x)


@script
def results_that_are_arguments():
    mesh = mesh_of(2, 4)
    x = ones(mesh, (8, 16), "data")
    jax.jit(lambda x, n: (x, n + 1, x.sum()), donate_argnums=0)(x, jnp.int32(1))


@script
def resharded_in_types():
    mesh = mesh_of(2, 4, types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        x = jax.device_put(np.ones((8, 16), np.float32), P("data", None))
        y = jax.sharding.reshard(x, P(None, "model"))
        jax.jit(lambda y: jax.sharding.reshard(y * 2, P("data", "model")))(y)


@script
def equinox_with_donated_state():
    import equinox as eqx
    import optax

    mesh = mesh_of(8, names=("data",))
    model = eqx.filter_shard(eqx.nn.MLP(16, 16, 64, 2, key=jax.random.key(0)), NamedSharding(mesh, P()))
    optimizer = optax.sgd(0.1, momentum=0.9)
    state = eqx.filter_jit(optimizer.init)(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit(donate="all")
    def step(model, state, x):
        grads = eqx.filter_grad(lambda m: jnp.mean(jax.vmap(m)(x) ** 2))(model)
        updates, state = optimizer.update(grads, state, model)
        return eqx.apply_updates(model, updates), state

    for _ in range(3):
        model, state = step(model, state, ones(mesh, (8, 16), "data"))


@script
def linen_train_state_on_logical_axes():
    import flax.linen as nn
    import optax
    from flax.training.train_state import TrainState

    mesh, rules = mesh_of(2, 4), (("batch", "data"), ("embed", None), ("mlp", "model"))

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            init = nn.with_logical_partitioning(nn.initializers.lecun_normal(), ("embed", "mlp"))
            h = nn.with_logical_constraint(nn.Dense(64, kernel_init=init)(x), ("batch", "mlp"))
            back = nn.with_logical_partitioning(nn.initializers.lecun_normal(), ("mlp", "embed"))
            return nn.Dense(16, kernel_init=back)(h)

    model, x = Block(), np.ones((8, 16), np.float32)
    make = lambda key: TrainState.create(apply_fn=model.apply, params=model.init(key, x)["params"], tx=optax.adam(1e-3))
    with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
        specs = nn.get_partition_spec(jax.eval_shape(make, jax.random.key(0)))
        placed = nn.logical_to_mesh_sharding(specs, mesh, rules)
        state = jax.jit(make, out_shardings=placed)(jax.random.key(0))

        @functools.partial(jax.jit, donate_argnums=0, out_shardings=(placed, None))
        def step(state, x):
            value, grads = jax.value_and_grad(lambda p: jnp.mean(state.apply_fn({"params": p}, x) ** 2))(state.params)
            return state.apply_gradients(grads=grads), value

        for _ in range(2):
            state, _ = step(state, ones(mesh, (8, 16), "data"))


@script
def data_parallel_by_pmap():
    params = jax.tree.map(lambda a: np.stack([a] * 8), {"w1": np.ones((16, 64)), "w2": np.ones((64, 16))})

    @functools.partial(jax.pmap, axis_name="batch", donate_argnums=0)
    def step(params, x):
        grads = jax.lax.pmean(jax.grad(loss)(params, x), "batch")
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    for _ in range(3):
        params = step(params, np.ones((8, 2, 16), np.float32))


@script
def compiled_ahead_with_donation():
    mesh = mesh_of(2, 4)
    params = weights(mesh)
    step = jax.jit(lambda p, x: jax.tree.map(lambda a, g: a - 0.1 * g, p, jax.grad(loss)(p, x)), donate_argnums=0)
    compiled = step.lower(params, ones(mesh, (8, 16), "data")).compile()
    for _ in range(3):
        params = compiled(params, ones(mesh, (8, 16), "data"))


@script
def weights_in_the_formats_of_a_compiled_step():
    """As a serving program does: the step is compiled first, and the weights are made as its formats say."""
    mesh = mesh_of(2, 4, types=2 * (AxisType.Explicit,))
    auto = Format(Layout.AUTO)

    def shaped(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    with jax.set_mesh(mesh):
        step = jax.jit(lambda w, n: (w * n, w.sum()), in_shardings=auto, out_shardings=auto)
        compiled = step.lower(shaped((16, 8), "data", "model"), jax.ShapeDtypeStruct((), jnp.float32)).compile()
        w, n = compiled.input_formats[0]
        assert [each.layout.major_to_minor for each in (w, n)] == [(0, 1), ()]
        assert compiled.input_shardings[0] == (w.sharding, n.sharding) and n.sharding.is_fully_replicated
        made = jax.jit(lambda: jnp.ones((16, 8)), out_shardings=w.sharding)()
        outs = [each.sharding for each in compiled.output_formats]
        jax.jit(lambda w: (w * 2, w.sum()), out_shardings=tuple(outs))(made)


@script
def a_shard_map_that_is_not_jitted():
    """JAX dispatches each of its operations from inside a trace."""
    mesh = mesh_of(2, 4)
    x = ones(mesh, (8, 16), "data")
    jax.shard_map(lambda v: jnp.sort(jnp.cumsum(v, 1), axis=1), mesh=mesh, in_specs=P("data"), out_specs=P("data"))(x)


@script
def an_explicit_axis_of_size_one():
    mesh = mesh_of(1, 8, types=2 * (AxisType.Explicit,))
    with jax.set_mesh(mesh):
        x = jax.sharding.reshard(jnp.zeros((4, 8)), P("data", "model"))
        kept = jax.jit(jnp.tanh)(x).sharding.spec
        jax.jit(jax.shard_map(lambda v: 2 * v, in_specs=kept, out_specs=kept))(jax.jit(jnp.tanh)(x))
        jax.jit(jnp.transpose)(x)


@script
def stages_on_two_halves():
    one, other = mesh_of(4, names=("data",)), mesh_of(4, names=("data",), devices=jax.devices()[4:])
    first, second = (ones(mesh, (16, 16)) for mesh in (one, other))
    forward = jax.jit(lambda w, x: jnp.tanh(x @ w))
    for _ in range(2):
        x = forward(first, ones(one, (8, 16), "data"))
        forward(second, jax.device_put(x, NamedSharding(other, P("data"))))


@script
def trained_weights_to_a_sampler():
    train, serve = mesh_of(8, names=("data",)), mesh_of(4, names=("model",))
    w = ones(train, (16, 16), "data")
    sample = jax.jit(lambda w, x: jax.nn.softmax(x @ w))
    for _ in range(2):
        w = jax.jit(lambda w: w * 0.9, donate_argnums=0)(w)
        served = jax.device_put({"w": w}, NamedSharding(serve, P(None, "model")))
        sample(served["w"], np.ones((2, 16), np.float32))


@script
def loops_and_branches_inside():
    mesh = mesh_of(2, 4)

    @jax.jit
    def solve(w, x):
        def body(state):
            i, x = state
            return i + 1, jax.lax.cond(i % 2, jnp.sin, jnp.cos, x @ w)

        return jax.lax.while_loop(lambda s: s[0] < 4, body, (0, x))[1]

    solve(ones(mesh, (16, 16), None, "model"), ones(mesh, (8, 16), "data"))


@script
def arguments_on_another_mesh_of_the_same_devices():
    ahead, mesh = mesh_of(8, names=("ahead",)), mesh_of(2, 4)
    x = jax.device_put(np.ones((8, 16), np.float32), NamedSharding(ahead, P("ahead")))
    given = NamedSharding(mesh, P("data", "model"))
    jax.jit(lambda x, w: x @ w, in_shardings=(None, given), out_shardings=given)(x, np.ones((16, 8)))
    jax.pmap(lambda x, w: jax.lax.psum(x * w, "batch"), axis_name="batch")(x, np.ones(8, np.float32))


@script
def no_transfer_unless_asked_for():
    with jax.transfer_guard("disallow"):
        params = weights(mesh_of(2, 4))
        for _ in range(2):
            params = jax.jit(lambda p: jax.tree.map(lambda a: a @ a.T, p))(params)


@script
def a_constraint_that_does_not_divide():
    mesh = mesh_of(2, 4)
    init = jax.jit(lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data", "model"))))
    init(ones(mesh, (32, 1)))


@script
def axes_that_are_auto_for_a_while():
    mesh = mesh_of(2, 4, types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        x = jax.device_put(np.ones((8, 16), np.float32), P("data", None))
        jax.sharding.auto_axes(lambda x: jnp.cumsum(x > 0, axis=-1), out_sharding=P("data", None))(x)


@script
def results_that_a_program_settles_itself():
    """Those of constraints, scalars, and zeros that nothing reaches; and next to them some that only Shardy knows."""
    mesh = mesh_of(2, 4)
    on = lambda *spec: NamedSharding(mesh, P(*spec))
    constrained = jax.lax.with_sharding_constraint

    @jax.jit
    def init():
        w = constrained(jax.random.normal(jax.random.key(0), (16, 32)), on("data", "model"))
        return {"w": w, "mu": jnp.zeros_like(w), "step": jnp.zeros((), int), "steps": jnp.arange(8)}

    @jax.jit
    def tied():
        w = jax.random.normal(jax.random.key(0), (16, 32))
        table = jnp.arange(32.0)
        return w, constrained(w, on("data")), table, constrained(table * 2, on("model")), jnp.ones((8, 8))

    @jax.jit
    def inside():
        step = lambda c, _: (constrained(c + 1, on("data")), c.sum())
        return jax.lax.scan(step, jnp.zeros((16, 32)), length=3), jnp.zeros((16, 32))

    @jax.jit
    def open_dimension():
        w = jnp.ones((16, 32))
        return constrained(w, on("data", P.UNCONSTRAINED)), jax.lax.cumsum(constrained(w, on(None, "model")))

    state = init()
    tied(), inside(), open_dimension()
    jax.jit(lambda s: {**s, "w": constrained(s["w"] + 1, on("model")), "mu": jnp.zeros((16, 32))})(state)


@script
def a_count_in_a_shard_map():
    """A counter and a key that are replicated, next to sums over devices."""

    def body(count, key, x):
        place = count + jax.lax.axis_index("data")
        return count + 1, jax.random.fold_in(key, count), jax.lax.psum(x, "data"), jax.lax.psum(place, "data")

    mesh = mesh_of(2, 4)
    specs = (P(), P(), P("data")), (P(), P(), P(), P())
    step = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=specs[0], out_specs=specs[1]))
    count, key = jax.device_put((np.int32(3), jax.random.key(1)), NamedSharding(mesh, P()))
    for _ in range(3):
        count, key, *_ = step(count, key, ones(mesh, (8, 16), "data"))


@script
def a_state_that_counts():
    """Counters, keys and schedules next to weights, through loops, branches and donation, on and off the mesh."""
    mesh = mesh_of(2, 4)
    on = lambda *spec: NamedSharding(mesh, P(*spec))

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, x):
        w, count, key, _ = state

        def layer(carry, index):
            h, depth = carry
            return (jnp.tanh(h @ w), depth + 1), (h.sum(), depth * index)

        (h, depth), ys = jax.lax.scan(layer, (x, count), jnp.arange(3))
        rate = jax.lax.cond(count > 2, lambda c: c * 0.5, lambda c: c * 3.0, count.astype(float))
        key, once = jax.random.split(key)
        halt = jax.lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2, c[2] + h.sum()), (0, count, 0.0))
        drawn = jax.random.randint(once, (4,), 0, 100)
        until_done = jax.lax.while_loop(lambda c: c[1] < h.max(), lambda c: (c[0] + 1, c[1] + 1.0), (count, 0.0))
        return (w * rate, count + 1, key, rate), (ys, depth, halt, drawn, until_done[0], h.sum())

    state = np.ones((16, 16), np.float32), np.int32(1), jax.random.key(3), np.float32(0)
    state = jax.device_put(state, (on("data", "model"), on(), on(), on()))
    for _ in range(4):
        state, metrics = step(state, ones(mesh, (8, 16), "data"))
    moved = jax.device_put(state[1], on())
    here = jax.device_put(state[1:3], jax.devices()[3])
    np.arange(10)[: here[0] + 1], jax.random.normal(here[1], (2,))
    for _ in range(state[1] - 2):
        jax.jit(lambda count, loss: (count * 2, loss + count))(moved, metrics[-1])


@script
def a_cache_that_is_filled():
    """A serving loop takes its first token where the prompt ends, and stops after as many tokens as there is room."""
    mesh = mesh_of(2, 4, types=2 * (AxisType.Explicit,))

    @functools.partial(jax.jit, donate_argnums=2)
    def forward(w, tokens, cache, is_token):
        x = w.at[tokens].get(out_sharding=P("data", None, None)) @ w
        count = jax.sharding.auto_axes(lambda t: jnp.sum(t, -1).max(), out_sharding=P())(is_token)
        return jnp.argmax(x, -1), {"k": cache["k"] + x.sum(1), "at": (jnp.maximum(cache["at"], 0) + count) % 32}

    with jax.set_mesh(mesh):
        w = jax.device_put(np.ones((16, 16), np.float32), P())
        places = {"k": NamedSharding(mesh, P("data")), "at": NamedSharding(mesh, P())}
        cache = jax.jit(lambda: {"k": jnp.zeros((8, 16)), "at": -jnp.ones((), int)}, out_shardings=places)()
        prompt = jax.sharding.reshard(jnp.pad(np.full((8, 5), 7), ((0, 0), (0, 3))), P("data"))
        following, cache = forward(w, prompt, cache, prompt != 0)
        token = following[:, cache["at"] - 1 : cache["at"]]
        assert token.shape == (8, 1)
        while cache["at"] < 8:
            token, cache = forward(w, token + 1, cache, jnp.ones((8, 1), bool))


def dispatched(name: str, dry: bool) -> list:
    """What a script dispatches to several devices, in order; and of the results the values that are known."""
    from jax._src import pjit, stages

    import shardviz as sv
    from shardviz._jax import dispatch
    from shardviz.runs import dry as dry_runs
    from shardviz.runs import values

    jax.clear_caches()
    rows, theirs, called = [], None, None

    def watched(*args, **params):
        program = dispatch._dispatched(args, params)
        if dry_runs._span(program) == 1:
            return theirs(*args, **params)
        live = dry_runs.LiveArrays().now()[0]
        results = theirs(*args, **params)
        numbers = [_numbers(seen[0].deferred(r) if dry else r) for r in results[0]]
        rows.append([program.closed.jaxpr.debug_info.func_name, live, [_row(r) for r in results[0]], numbers])
        return results[0], None, None, []

    def watched_ahead(compiled, *args, **kwargs):
        live = dry_runs.LiveArrays().now()[0]
        result = called(compiled, *args, **kwargs)
        rows.append(["compiled ahead", live, [_row(r) for r in jax.tree.leaves(result)], []])
        return result

    def watched_values(known):
        begin(known)
        seen.append(known)

    seen, begin = [], values.Values.__init__
    values.Values.__init__ = watched_values
    with sv.dry_run() if dry else contextlib.nullcontext([]) as run:
        theirs, called = pjit._pjit_call_impl_python, stages.Compiled.__call__
        pjit._pjit_call_impl_python, stages.Compiled.__call__ = watched, watched_ahead
        try:
            SCRIPTS[name]()
        finally:
            pjit._pjit_call_impl_python, stages.Compiled.__call__ = theirs, called
            values.Values.__init__ = begin
    assert all(not step.why_not for step in run), [step.why_not for step in run]
    return rows


def _row(array) -> list:
    where = str(array.sharding.devices_indices_map(array.shape).items())
    return [list(array.shape), str(array.dtype), where, str(getattr(array.sharding, "spec", ""))]


def _numbers(array) -> list | None:
    """The values of an array, or those that its origin in a dry run stands for."""
    value = _jax.read(array) if isinstance(array, jax.Array) else array and array.computed()
    return None if value is None else value.astype(float).ravel().tolist()


if __name__ == "__main__":
    both = {}
    for name in sys.argv[1:] or SCRIPTS:
        rows = []
        for dry in (True, False):
            try:
                rows.append(dispatched(name, dry))
            except Exception as error:  # noqa: BLE001  # told by the test
                traceback.print_exc()
                rows.append(f"{type(error).__name__}: {error}")
        both[name] = rows
    json.dump(both, sys.stdout)

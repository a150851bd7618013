"""pmapped functions as they were written, with the sizes of their arguments; nothing of shardviz in them."""

import jax
import jax.numpy as jnp
import numpy as np

SIZES = (2, 8, 64)


def normalised(weights, x):
    """Each device's row over the sum of all rows, and everybody's rows."""
    y = jnp.tanh(x @ weights)
    return y / jax.lax.psum(y, "batch"), jax.lax.all_gather(y, "batch")


def loss(params, x, y):
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    return ((hidden @ params["w2"] - y) ** 2).mean()


def train_step(state, batch):
    """Data parallelism: gradients averaged over the devices, momentum, replicas of everything else."""
    params, velocity = state
    value, grads = jax.value_and_grad(loss)(params, *batch)
    grads = jax.lax.pmean(grads, axis_name="batch")
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
    params = jax.tree.map(lambda p, v: p - 0.1 * v, params, velocity)
    return (params, velocity), jax.lax.pmean(value, axis_name="batch")


def shifted(tree, steps, scale, *, bias):
    """Neighbours' values; arguments mapped along various dimensions, one static and one by keyword."""
    n = jax.lax.psum(1, "ring")
    moved = jax.lax.ppermute(tree["a"], "ring", [(i, (i + steps) % n) for i in range(n)])
    return {"moved": moved * scale["s"] + bias, "total": jax.lax.pmax(tree["b"].sum(), "ring")}


def plain(x, y):
    """No name for the axis, and nothing said between the devices."""
    return jnp.sin(x) @ y


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def examples(n):
    """name → (function, what pmap is told, positional arguments, keyword arguments) with n devices."""
    params = {"w1": numbers(n, 4, 16), "b1": numbers(n, 16), "w2": numbers(n, 16, 2)}
    params = {k: np.broadcast_to(v[:1], v.shape).copy() for k, v in params.items()}
    state = params, {k: np.zeros_like(v) for k, v in params.items()}
    return {
        "normalised": (normalised, {"axis_name": "batch", "in_axes": (None, 0)}, (numbers(4, 4), numbers(n, 4)), {}),
        "train_step": (
            train_step,
            {"axis_name": "batch", "donate_argnums": 0},
            (state, (numbers(n, 6, 4, seed=1), numbers(n, 6, 2, seed=2))),
            {},
        ),
        "shifted": (
            shifted,
            {
                "axis_name": "ring",
                "in_axes": ({"a": 1, "b": 2}, None, None),
                "out_axes": {"moved": 1, "total": None},
                "static_broadcasted_argnums": 1,
            },
            ({"a": numbers(3, n), "b": numbers(2, 3, n)}, 1, {"s": np.float32(2.0)}),
            {"bias": numbers(n)},
        ),
        "plain": (plain, {}, (numbers(n, 4, 4), numbers(n, 4)), {}),
    }


def pmapped(name, n):
    """(the pmapped function, its arguments, its keyword arguments)."""
    fn, told, args, kwargs = examples(n)[name]
    return jax.pmap(fn, **told), args, kwargs


def on_one_device(name, n):
    """What `jax.vmap` makes of it."""
    fn, told, args, kwargs = examples(n)[name]
    static = told.get("static_broadcasted_argnums")
    in_axes = told.get("in_axes", 0)
    if static is not None:
        fn, in_axes = _without(fn, static, args[static]), tuple(a for i, a in enumerate(in_axes) if i != static)
        args = tuple(a for i, a in enumerate(args) if i != static)
    run = jax.vmap(fn, in_axes=in_axes, out_axes=told.get("out_axes", 0), axis_name=told.get("axis_name"))
    return run(*args, **kwargs)


def _without(fn, place, value):
    """The function with one of its arguments given."""
    return lambda *args, **kwargs: fn(*args[:place], value, *args[place:], **kwargs)

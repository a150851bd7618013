"""For pairs of calls: what JAX did at the second one, counted, and what `sv.compat.why_recompiled` says; as JSON.

Run in a process of its own, with two simulated devices.
"""

import contextlib
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.compat.recompile import why_recompiled

COMPILES = [0]
TRACES = [0]
CASES = {}


def count_compiles(event, duration, **kwargs):
    COMPILES[0] += event == "/jax/core/compile/backend_compile_duration"


class Equal:
    """Equal by value, as a static value should be."""

    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return hash(self.value)

    def __eq__(self, other):
        return self.value == other.value


class Plain:
    """Equal to itself only."""


def flat(*args, **kwargs):
    TRACES[0] += 1
    return [x.reshape(-1) for x in jax.tree.leaves((args, kwargs)) if hasattr(x, "dtype")]


def fresh():
    def fn(*args, **kwargs):
        return flat(*args, **kwargs)

    return fn


def static_fresh():
    def fn(x, k=0, **rest):
        TRACES[0] += 1
        return x * 2

    return fn


def call(*args, **kwargs):
    return args, kwargs


def pair(name, a, b, inside=contextlib.nullcontext, *, before=contextlib.nullcontext, make=fresh, wrap=None, **options):
    """Calls one function twice, the second time `inside` a context, and puts down what happened and what is said."""
    fn = (wrap or jax.jit)(make(), **options)
    with before():
        fn(*a[0], **a[1])
    was = TRACES[0], COMPILES[0]
    with inside():
        fn(*b[0], **b[1])
    happened = [TRACES[0] > was[0], COMPILES[0] > was[1]]
    with before():
        program = sv.trace(fn, *a[0], **a[1])
    with inside():
        second = program.call(*b[0], **b[1])
    put(name, happened, program.calls[0], second)


def put(name, happened, first, second):
    why = why_recompiled(first, second)
    CASES[name] = {"happened": happened, "said": [why.traced, why.compiled], "text": repr(why)}


def wrappings(name, one, other):
    """Two wrappings of one function."""
    fn = fresh()
    x = np.ones((4, 4), np.float32)
    first = jax.jit(fn, **one)
    first(x)
    was = TRACES[0], COMPILES[0]
    second = jax.jit(fn, **other)
    second(x)
    happened = [TRACES[0] > was[0], COMPILES[0] > was[1]]
    put(name, happened, sv.trace(first, x).calls[0], sv.trace(second, x).calls[0])


def main():
    jax.monitoring.register_event_duration_secs_listener(count_compiles)
    devices = jax.devices()
    assert len(devices) == 2
    x = np.ones((4, 4), np.float32)
    jx = jnp.ones((4, 4))
    held = jax.device_put(jx, devices[0])
    meshed = lambda name, kind: jax.make_mesh((2,), (name,), axis_types=(kind,))  # noqa: E731
    m, other, explicit = meshed("x", AxisType.Auto), meshed("y", AxisType.Auto), meshed("x", AxisType.Explicit)
    backwards = Mesh(np.array(devices[::-1]), ("x",))
    on = lambda mesh, *spec: jax.device_put(jx, NamedSharding(mesh, P(*spec)))  # noqa: E731
    a, one = call(x), NamedSharding(m, P("x"))

    pair("the same", a, call(x + 1))
    pair("shape", a, call(x[:2]))
    pair("dtype", a, call(x.astype(np.int32)))
    pair("dtype that x64 makes the same", a, call(x.astype(np.float64)))
    pair("numpy to jax", a, call(jx))
    pair("numpy number to array", call(np.float32(1)), call(np.array(1, np.float32)))
    pair("numbers of one type", call(1.0), call(2.0))
    pair("float to int", call(1.0), call(1))
    pair("int to bool", call(1), call(True))
    pair("bool to numpy bool", call(True), call(np.bool_(True)))
    pair("weak to numpy", call(1.0), call(np.float32(1)))
    pair("weak to jax", call(1.0), call(jnp.float32(1)))
    pair("weak to weak", call(1.0), call(jnp.asarray(1.0)))
    pair("key", call(jax.random.key(0)), call(jax.random.PRNGKey(0)))
    pair("key of another kind", call(jax.random.key(0)), call(jax.random.key(0, impl="rbg")))

    pair("dict keys", call({"a": x}), call({"b": x}))
    pair("a key more", call({"a": x}), call({"a": x, "b": x}))
    pair("a key less", call({"a": x, "b": x}), call({"a": x}))
    pair("order of keys", call({"a": x, "b": x}), call({"b": x, "a": x}))
    pair("list to tuple", call([x]), call((x,)))
    pair("None to array", call(x, None), call(x, x))
    pair("by keyword", call(x), call(y=x))

    static = {"make": static_fresh, "static_argnames": "k"}
    pair("static, the same", call(x, 1), call(x, 1), **static)
    pair("static, another", call(x, 1), call(x, 2), **static)
    pair("static, of another type", call(x, 1), call(x, 1.0), **static)
    pair("static, bool for int", call(x, 1), call(x, True), **static)
    pair("static, equal", call(x, Equal(1)), call(x, Equal(1)), **static)
    pair("static, not equal", call(x, Equal(1)), call(x, Equal(2)), **static)
    pair("static, without equality", call(x, Plain()), call(x, Plain()), **static)
    pair("static by keyword", call(x, 1), call(x, k=1), **static)
    pair("static by default", call(x), call(x, k=0), **static)
    pair("static in another order", call(x, a=1, k=2), call(x, k=2, a=1), make=static_fresh, static_argnames=("a", "k"))

    pair("committed", call(jx), call(held))
    pair("no more committed", call(held), call(jx))
    pair("numpy to committed", a, call(held))
    pair("another device", call(held), call(jax.device_put(jx, devices[1])))
    pair("onto a mesh", call(held), call(on(m)))
    pair("another spec", call(on(m, "x")), call(on(m)))
    pair("a spec spelled otherwise", call(on(m, "x")), call(on(m, "x", None)))
    pair("another axis name", call(on(m, "x")), call(on(other, "y")))
    pair("devices in another order", call(on(m, "x")), call(on(backwards, "x")))
    pair("explicit, another spec", call(on(explicit)), call(on(explicit, "x")))
    pair("auto to explicit", call(on(m, "x")), call(on(explicit, "x")))
    pair("numpy where shardings are given", a, call(jx), in_shardings=one)
    pair("onto a mesh where shardings are given", call(jx), call(on(m, "x")), in_shardings=one)

    pair("set_mesh", a, a, lambda: jax.set_mesh(m))
    pair("another set_mesh", a, a, lambda: jax.set_mesh(other), before=lambda: jax.set_mesh(m))
    pair("set_mesh, other devices", a, a, lambda: jax.set_mesh(backwards), before=lambda: jax.set_mesh(m))
    pair("with mesh", a, a, lambda: m)
    pair("x64", a, a, lambda: jax.enable_x64(True))
    pair("precision", a, a, lambda: jax.default_matmul_precision("float32"))
    pair("default device", a, a, lambda: jax.default_device(devices[1]))
    pair("a setting that no trace depends on", a, a, lambda: jax.log_compiles(False))

    wrappings("another wrapping", {}, {"static_argnums": ()})
    wrappings("donated", {}, {"donate_argnums": 0})

    pair("pmap, the same", call(np.ones((2, 3))), call(np.zeros((2, 3))), wrap=jax.pmap)
    pair("pmap, shape", call(np.ones((2, 3))), call(np.zeros((2, 4))), wrap=jax.pmap)
    pair("pmap, dtype", call(np.ones((2, 3))), call(np.ones((2, 3), np.int32)), wrap=jax.pmap)
    pair("pmap, keys", call({"a": np.ones((2, 3))}), call({"b": np.ones((2, 3))}), wrap=jax.pmap)
    pmapped = {"wrap": jax.pmap, "make": static_fresh, "static_broadcasted_argnums": 1}
    pair("pmap, static", call(np.ones((2, 3)), 1), call(np.ones((2, 3)), 2), **pmapped)
    pair("pmap, the same static", call(np.ones((2, 3)), 1), call(np.ones((2, 3)), 1), **pmapped)
    print(json.dumps(CASES))


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "`with mesh:`", DeprecationWarning)
    warnings.filterwarnings("ignore", "Some donated buffers", UserWarning)
    main()

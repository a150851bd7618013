"""Programs with `custom_partitioning`, each with what its partition function makes of its shardings."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.raw import array


@custom_partitioning
def softmax(x):
    return jax.nn.softmax(x)


softmax.def_partition(
    partition=lambda mesh, args, result: (mesh, jax.nn.softmax, result.sharding, tuple(a.sharding for a in args)),
    infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
    sharding_rule="i j -> i j",
)


@custom_partitioning
def fft(x):
    """The example of JAX's documentation: all of the last dimension is wanted."""
    return jnp.fft.fft(x)


def _rows(sharding):
    return NamedSharding(sharding.mesh, P(*sharding.spec[:1], None))


fft.def_partition(
    partition=lambda mesh, args, result: (mesh, jnp.fft.fft, _rows(result.sharding), (_rows(args[0].sharding),)),
    sharding_rule="i j -> i j",
)


@custom_partitioning
def product(x, w):
    return x @ w


def _product(mesh, args, result):
    x, w = (a.sharding.spec for a in args)
    met = x[1]

    def local(x, w):
        out = x @ w
        return jax.lax.psum(out, met) if met else out

    cut = lambda *spec: NamedSharding(mesh, P(*spec))  # noqa: E731
    return mesh, local, cut(x[0], w[1]), (cut(x[0], met), cut(met, w[1]))


product.def_partition(partition=_product, sharding_rule="i k, k j -> i j", reduction_factors=("k",))


@functools.partial(custom_partitioning, static_argnums=(1,))
def moments(x, scale):
    """Two results, an argument that is static, and no rule."""
    return {"mean": x.mean(1) * scale, "square": (x * x).sum(1)}


def _moments(scale, mesh, args, result):
    rows = args[0].sharding.spec[0]
    out = NamedSharding(mesh, P(rows))
    return (
        mesh,
        lambda x: {"mean": x.mean(1) * scale, "square": (x * x).sum(1)},
        {"mean": out, "square": out},
        (NamedSharding(mesh, P(rows, None)),),
    )


moments.def_partition(partition=_moments)


def scanned(x):
    return jax.lax.scan(lambda c, _: (softmax(c * 2), None), x, None, length=3)[0]


PROGRAMS = {
    "rows": (scanned, (array(16, 64),), (P("data"),)),
    "both": (scanned, (array(16, 64),), (P("data", "model"),)),
    "fft": (lambda x: fft(x * 2), (array(16, 64),), (P("data", "model"),)),
    "product": (lambda x, w: jnp.tanh(product(x, w)), (array(16, 64), array(64, 32)), (P("data", "model"), P("model"))),
    "no sum": (product, (array(16, 64), array(64, 32)), (P("data"), P(None, "model"))),
    "two": (lambda x: moments(x + 1, 3.0), (array(16, 64),), (P("data", "model"),)),
    "called twice": (lambda x: jax.jit(fft)(jax.jit(fft)(x).real * 2), (array(16, 64),), (P("data", "model"),)),
}
"""name → function, arguments, specs on data=2, model=4."""

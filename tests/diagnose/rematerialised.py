"""Programs in which XLA's partitioner gives up: it gathers an array whole on every device, and warns on its stderr.

They are small forms of what people ask about: https://github.com/jax-ml/jax/issues/21562 (two constraints that share
no dimension), jax/issues/18591 (which operation is it?), openxla/xla/pull/15402, EnzymeAD/Enzyme-JAX/issues/822 (a
pad), Physical-Intelligence/openpi/pull/112 (a result of the whole step). The line that a finding must name ends in
`# here`.
"""

import jax
import jax.numpy as jnp
from jax.lax import with_sharding_constraint as constrained
from jax.sharding import PartitionSpec as P

from tests.raw import array as s

ENDS, MIDDLE = P("y", None, "x"), P(None, ("x", "y"))
"""There is no short way between these: no dimension is cut in both."""


def added(a, b, c):
    d = a + b  # here
    return c + constrained(d, MIDDLE)


def heads(a):
    flat = constrained(jnp.tanh(a), P(("x", "y")))
    split = flat.reshape(16, 4, 16)  # here
    return constrained(split, P(None, "y", "x")) + 1


def product(a, w):
    h = constrained(jnp.einsum("bij,jk->bik", a, w), ENDS)  # here
    return constrained(h, MIDDLE) * 2


def in_a_scan(a, ws):
    def body(carry, w):
        h = constrained(carry * w, ENDS)  # here
        return constrained(h, MIDDLE), None

    return jax.lax.scan(body, a, ws)[0]


def backwards(a):
    def loss(a):
        h = constrained(jnp.sin(a), ENDS)
        return jnp.sum(jnp.cos(constrained(h, MIDDLE)) ** 2)  # here

    return jax.grad(loss)(a)


def turned(a):
    h = constrained(jnp.transpose(a, (2, 1, 0)), ENDS)  # here
    return constrained(h, MIDDLE) + 1


def padded(a):
    h = constrained(jnp.pad(a, ((4, 4), (0, 0), (0, 0))), ENDS)  # here
    return constrained(h, MIDDLE) + 1


def looked_up(table, ids):
    h = constrained(table[ids], ENDS)  # here
    return constrained(h, MIDDLE) * 2


def normed(a):
    h = constrained(a / jnp.sqrt(jnp.mean(a**2, axis=1, keepdims=True)), ENDS)  # here
    return constrained(h, MIDDLE) * 2


def in_a_function(a):
    @jax.jit
    def inner(a):
        return constrained(jnp.exp(a), ENDS)  # here

    return constrained(inner(a), MIDDLE) * 2


def joined(a, b):
    h = constrained(jnp.concatenate([a, b], 2), ENDS)  # here
    return constrained(h, MIDDLE) * 2


def checkpointed(a, w):
    @jax.checkpoint
    def layer(a):
        h = constrained(a * w, ENDS)  # here
        return constrained(h, MIDDLE) * 2

    return layer(a)


def result(a):
    return jnp.tanh(a)  # here


CUBE = s(16, 16, 16)
PROGRAMS = {  # function: arguments, their specs, and the results'
    added: ((CUBE, CUBE, CUBE), (ENDS, ENDS, MIDDLE), None),
    heads: ((s(16, 64),), (P("x", "y"),), None),
    product: ((CUBE, s(16, 16)), (ENDS, P()), None),
    in_a_scan: ((CUBE, s(3, 16, 16, 16)), (MIDDLE, P()), None),
    backwards: ((CUBE,), (ENDS,), None),
    turned: ((CUBE,), (P("x", None, "y"),), None),
    padded: ((s(8, 16, 16),), (P("y", None, "x"),), None),
    looked_up: ((s(128, 16), s(16, 16, dtype=jnp.int32)), (P(None, "x"), P("y")), None),
    normed: ((CUBE,), (ENDS,), None),
    in_a_function: ((CUBE,), (ENDS,), None),
    joined: ((s(16, 16, 8), s(16, 16, 8)), (ENDS, ENDS), None),
    checkpointed: ((CUBE, CUBE), (ENDS, ENDS), None),
    result: ((CUBE,), (ENDS,), MIDDLE),
}
MESH = "x=4,y=2"

"""Random small programs of products, elementwise operations, reductions, reshapes, constraints and scans, as recipes.

A recipe is plain data, so that a program can be made again with a constraint that says less: the independent check of
what `program.why` claims of constraints. Every step's operation stands under a name of its own, `s0`, `s1`, ...
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

MESH = {"a": 2, "b": 2}
SIZE = 8


@dataclass(frozen=True)
class Step:
    """An operation on values that were made before, by their numbers; `cut` is of a constraint."""

    kind: str
    on: tuple[int, ...]
    dim: int = 0
    cut: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """A program of matrices of 8 x 8, how its arguments and its result are cut, and the values that it gives back."""

    arguments: int
    steps: tuple[Step, ...]
    in_cuts: tuple[tuple[str | None, ...], ...]
    out_cut: tuple[str | None, ...] | None

    def without(self, role, name, dimension, axis):
        """The recipe that does not say an axis at a place: an argument's, the result's, or a step's."""
        drop = lambda cut: tuple(None if d == dimension and a == axis else a for d, a in enumerate(cut))
        if role == "argument":
            at = int("".join(filter(str.isdigit, name)))
            return replace(self, in_cuts=tuple(drop(c) if i == at else c for i, c in enumerate(self.in_cuts)))
        if role == "output":
            return replace(self, out_cut=drop(self.out_cut))
        at = int(name.removeprefix("s"))
        return replace(
            self, steps=tuple(replace(s, cut=drop(s.cut)) if i == at else s for i, s in enumerate(self.steps))
        )

    def fn(self):
        """The function."""

        def program(given):
            values = [given[f"x{i}"] for i in range(self.arguments)]
            for number, step in enumerate(self.steps):
                with jax.named_scope(f"s{number}"):
                    values.append(_made(step, [values[i] for i in step.on]))
            return values[-1]

        return program

    def arguments_of(self):
        """Its abstract arguments."""
        return {f"x{i}": jax.ShapeDtypeStruct((SIZE, SIZE), jnp.float32) for i in range(self.arguments)}

    def plan(self):
        """Arguments of `sv.Plan`."""
        specs = {f"x{i}": P(*cut) for i, cut in enumerate(self.in_cuts)}
        return {"mesh": MESH, "in_specs": (specs,), "out_specs": None if self.out_cut is None else P(*self.out_cut)}


def _made(step, values):
    x = values[0]
    if step.kind == "dot":
        return x @ values[1] if step.dim == 0 else x.T @ values[1]
    if step.kind == "add":
        return x + values[1]
    if step.kind == "tanh":
        return jnp.tanh(x)
    if step.kind == "reduce":
        return jnp.broadcast_to(x.sum(step.dim, keepdims=True), x.shape)
    if step.kind == "reshape":
        return jnp.sin(x.reshape(SIZE * SIZE) if step.dim else x.reshape(2, 4, SIZE)).reshape(x.shape)
    if step.kind == "scan":
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ values[1]), None), x, None, length=3)[0]
    if step.kind == "call":
        return jax.jit(lambda x, y: jnp.cos(x) * y)(x, values[1])
    return jax.lax.with_sharding_constraint(x, P(*step.cut))


cuts = st.sampled_from(
    [(None, None)] * 2 + [("a", None), (None, "a"), ("b", None), (None, "b"), ("a", "b"), ("b", "a")]
)
KINDS = ("dot", "dot", "add", "tanh", "reduce", "reshape", "scan", "call", "constraint")


@st.composite
def recipes(draw):
    """Any recipe of up to five steps."""
    count = draw(st.integers(1, 3))
    steps = []
    for number in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(KINDS))
        on = tuple(draw(st.integers(0, count + number - 1)) for _ in range(2))
        dim = draw(st.integers(0, 1)) if kind in ("dot", "reduce", "reshape") else 0
        steps.append(Step(kind, on, dim, draw(cuts) if kind == "constraint" else ()))
    ins = tuple(draw(cuts) for _ in range(count))
    return Recipe(count, tuple(steps), ins, draw(st.one_of(st.none(), cuts)))

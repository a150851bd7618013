"""Small programs in which a rule must find something, each beside one that does the same well.

The line that a finding must name ends in `# here`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import with_sharding_constraint as constrained
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.caching import cached_property
from tests.raw import array as s

MESH = "data=2,model=4"
_TRACED: dict[Any, sv.Program] = {}


@dataclass(frozen=True)
class Case:
    """A function under a plan.

    Attributes:
        fn, args: the function and its arguments.
        specs, out: the plan's specs.
        level: `propagated`, `partitioned` or, for CPUs, `compiled`.
        on: the machine whose seconds are asked for.
        options: of `sv.trace`.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    specs: Any
    _: KW_ONLY
    out: Any = None
    mesh: str = MESH
    level: str = "propagated"
    on: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def program(self) -> sv.Program:
        key = self.fn, str(self.args), str(self.options)
        if key not in _TRACED:
            _TRACED[key] = sv.trace(self.fn, *self.args, **self.options)
        return _TRACED[key]

    @property
    def plan(self) -> sv.Plan:
        return sv.Plan(self.mesh, self.specs, self.out)

    @cached_property
    def report(self) -> sv.Report:
        if self.level == "propagated":
            return self.program.propagate(self.plan)
        if self.level == "compiled":
            return self.program.compile(self.plan)
        return self.program.partition(self.plan, self.on or "cpu")

    def findings(self, report: sv.Report) -> tuple[Any, ...]:
        return report.findings if self.on is None else report.findings_on(self.on)

    @property
    def line(self) -> int | None:
        """The line that ends in `# here`."""
        lines, first = inspect.getsourcelines(self.fn)
        return next((first + i for i, text in enumerate(lines) if text.rstrip().endswith("# here")), None)


def loop_over_same(x, w):
    def body(carry, _):
        return jnp.tanh(carry @ w), None  # here

    return jax.lax.scan(body, x, None, length=10)[0]


def loop_over_stack(x, ws):
    return jax.lax.scan(lambda carry, w: (jnp.tanh(carry @ w), None), x, ws)[0]


def stack_made_whole(x, ws):
    whole = constrained(ws, P())
    return jax.lax.scan(lambda carry, w: (jnp.tanh(carry @ w), None), x, whole)[0]  # here


def stacks_made_whole(x, ws, us):
    whole = constrained(ws, P()), constrained(us, P())
    return jax.lax.scan(lambda carry, w: (jnp.tanh(carry @ w[0]) @ w[1], None), x, whole)[0]  # here


def there_and_back(x):
    y = constrained(constrained(x, P(None, "data")), P("data"))
    return y + 1  # here


def there_and_on(x):
    return jnp.sort(constrained(x, P(None, "data")), axis=0)


def there_and_back_in_a_layer(x):
    layer = jax.checkpoint(lambda each: constrained(jnp.tanh(each), P()))  # here
    return jax.lax.scan(lambda x, _: (layer(x), None), x, length=4)[0]


def layer_as_it_is(x):
    layer = jax.checkpoint(lambda x: constrained(jnp.tanh(x), P("data")))
    return jax.lax.scan(lambda x, _: (layer(x), None), x, length=4)[0]


def uneven_reshape(x):
    return jnp.tanh(x.reshape(8, 3, 8))  # here


def even_reshape(x):
    return jnp.tanh(x.reshape(8, 4, 6))


def appended(x):
    return jnp.concatenate([x, 2 * x], 0)  # here


def appended_elsewhere(x):
    return jnp.concatenate([x, 2 * x], 1)


def asked_each_table(tables, ids):
    return jax.vmap(lambda table, ids: table[ids], (0, 1), 1)(tables, ids)


def written(cache, new, at):
    return jax.lax.dynamic_update_slice(cache, new, (at, 0))  # here


def written_elsewhere(cache, new, at):
    return jax.lax.dynamic_update_slice(cache, new, (0, at))


def product(x, w):
    return x @ w  # here


def looked_up(table, ids):
    return table[ids]


def plain_product(x, w):
    return x @ w


def two_layers(x, w, u):
    return jnp.tanh(x @ w) @ u


def step(params, momentum, tokens):
    def loss(p):
        x = p["emb"][tokens]
        x = jnp.tanh(x @ p["w"]) @ p["u"]
        return jnp.mean((x @ p["emb"].T) ** 2)

    gradients = jax.grad(loss)(params)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum


def model(vocabulary: int = 4096, wide: int = 256) -> dict[str, Any]:
    return {"emb": s(vocabulary, wide), "w": s(wide, 1024), "u": s(1024, wide)}


TOKENS = s(16, 32, dtype=jnp.int32)
CUT = {"emb": P("model", "data"), "w": P("data", "model"), "u": P("model", "data")}
TENSOR = {"emb": P("model"), "w": P(None, "model"), "u": P("model")}
ODD = {"emb": P(), "w": P(None, "model"), "u": P("model")}


def stepped(cut: Any = None, momentum: Any = None, out: Any = None, **more: Any) -> Case:
    cut = CUT if cut is None else cut
    momentum = cut if momentum is None else momentum
    args = (more.pop("params", model()), more.pop("state", model()), TOKENS)
    return Case(fn=step, args=args, specs=(cut, momentum, more.pop("tokens", P("data"))), out=out, **more)


STEPPED = stepped()


def keeps(state, x):
    return {"w": state["w"] + jnp.sum(x)}, jnp.sum(state["w"])


def cut_again(state, x):
    return {"w": constrained(state["w"] * 2, P(None, "data"))}, x


def layers(ws, x):
    def body(carry, w):
        return jnp.tanh(jnp.sin(carry) @ w), None

    def loss(ws):
        return jnp.sum(jax.lax.scan(body, x, ws)[0])

    return jax.grad(loss)(ws)


def gradients(params, x):
    def loss(p):
        return jnp.sum(jnp.tanh(x @ p["w"]) @ p["u"])

    return jax.grad(loss)(params)


TABLE = np.ones((512, 1024), np.float32)


def looks_up(x):
    return jnp.tanh(x) @ TABLE  # here


def is_given(x, table):
    return jnp.tanh(x) @ table


def forward(params, tokens):
    x = params["emb"][tokens]
    h = jnp.tanh(x @ params["w"])  # here
    return jnp.sum(h @ params["u"], axis=-1)


def over_model(fn, *in_specs, out):
    mesh = jax.sharding.AbstractMesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    return jax.shard_map(fn, mesh=mesh, in_specs=in_specs, out_specs=out)


def mapped(x, w):
    return over_model(lambda x, w: jnp.tanh(x @ w), P("data"), P(), out=P("data"))(x, w)  # here


def mapped_by_rows(x, w):
    rows = P(("data", "model"))
    return over_model(lambda x, w: jnp.tanh(x @ w), rows, P(), out=rows)(x, w)


def of_its_own(x, w):
    """Each device takes its own rows of what enters all alike."""

    def own(x, w):
        rows = jax.lax.dynamic_slice_in_dim(x, 8 * jax.lax.axis_index("model"), 8)
        return jnp.tanh(rows @ w)

    return over_model(own, P("data"), P(), out=P(("data", "model")))(x, w)


def odd_rows(x):
    return jnp.tanh(x[1:])  # here


def even_rows(x):
    return jnp.tanh(x)


def attends(cache, q):
    new = jax.lax.dynamic_update_slice(cache, q, (0, 5, 0, 0))
    return new, jnp.einsum("bqhd,bshd->bhqs", q, new)


def two_results(x, w):
    return x @ w, jnp.sum(x)


def accumulates(w, xs):
    def body(total, x):
        return total + jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w), None  # here

    return w - jax.lax.scan(body, jnp.zeros_like(w), xs)[0]


def accumulates_apart(w, xs):
    ours = lambda xs: jax.lax.psum(accumulates(w, xs), "data")
    mesh = jax.sharding.AbstractMesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    return jax.shard_map(ours, mesh=mesh, in_specs=P(None, "data"), out_specs=P(), check_vma=False)(xs)


def compared(x, y):
    h = jnp.tanh(x)
    return jnp.sum((h - y) ** 2)  # here


def convolved(w, x):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))  # here


def experts(w, x):
    return jnp.einsum("ecd,edf->ecf", x, w)  # here


def logits(w, x):
    return jnp.sum(jnp.exp(x @ w), -1)  # here


def queries(a, keys, rest, x):
    h = jnp.tanh(x @ a)
    return h @ keys, h @ rest  # here


def pair(a, b, x):
    h = jnp.tanh(x @ a)
    return h @ b  # here


DONATED = {"donate_argnums": (0,)}
IMAGES = s(16, 32, 32, 4)
BATCH = s(64, 16)
STACK = s(10, 16, 16)


def versus(case: Case, **other: Any) -> tuple[Case, Case]:
    """A case, and the same with something otherwise."""
    return case, replace(case, **other)


GATHERED = Case(forward, (model(512), s(64, 256, dtype=jnp.int32)), (CUT, P("data")))
"""A program whose lookup gathers the batch."""
FIRES: dict[str, tuple[Case, Case]] = {
    "gathered-each-run": versus(
        Case(loop_over_same, (BATCH, s(16, 16)), (P("data"), P("data"))),
        fn=loop_over_stack,
        args=(BATCH, STACK),
        specs=(P("data"), P(None, "data")),
    ),
    "stack-gathered": versus(Case(stack_made_whole, (BATCH, STACK), (P("data"), P(None, "data"))), fn=loop_over_stack),
    "stack-gathered/two": versus(
        Case(stacks_made_whole, (BATCH, STACK, STACK), (P("data"), P(None, "data"), P(None, "data"))),
        fn=loop_over_stack,
        args=(BATCH, STACK),
        specs=(P("data"), P(None, "data")),
    ),
    "steps-along": versus(
        Case(loop_over_stack, (BATCH, STACK), (P("data"), P("data"))), specs=(P("data"), P(None, "data"))
    ),
    "there-and-back": versus(Case(there_and_back, (s(8, 16),), (P("data"),)), fn=there_and_on),
    "there-and-back/in a layer": versus(
        Case(there_and_back_in_a_layer, (s(8, 16),), (P("data"),), out=P("data")), fn=layer_as_it_is
    ),
    "along-shards": versus(Case(uneven_reshape, (s(8, 24),), (P("data", "model"),)), fn=even_reshape),
    "along-shards/concatenate": versus(Case(appended, (s(8, 16),), (P("model"),)), fn=appended_elsewhere),
    "large-constant": versus(
        Case(looks_up, (s(64, 512),), (P("data"),)),
        fn=is_given,
        args=(s(64, 512), s(512, 1024)),
        specs=(P("data"), P(None, "model")),
    ),
    "padded": versus(Case(odd_rows, (s(64, 64),), (P("model"),)), fn=even_rows),
    "result-gathered/gradient": versus(
        Case(
            gradients,
            ({"w": s(64, 64), "u": s(64, 64)}, s(32, 64)),
            ({"w": P("model"), "u": P("model")}, P("data")),
            out={"w": P(), "u": P("model")},
        ),
        out={"w": P("model"), "u": P("model")},
    ),
    "along-shards/update": versus(
        Case(written, (BATCH, s(4, 16), s(dtype=jnp.int32)), (P("data"), P(), P()), level="partitioned"),
        fn=written_elsewhere,
        args=(BATCH, s(64, 4), s(dtype=jnp.int32)),
        specs=(P("data"), P("data"), P()),
    ),
    "table-gathered": versus(
        Case(
            asked_each_table,
            (s(16, 8192, 64), s(1024, 16, dtype=jnp.int32)),
            (P("data"), P("data")),
            out=P("data"),
            mesh="data=8",
        ),
        specs=(P(None, "data"), P("data")),
    ),
    "conflict": versus(
        Case(product, (BATCH, s(16, 32)), (P(None, "data"), P("model"))), specs=(P(None, "data"), P("data"))
    ),
    "idle-axis": versus(Case(plain_product, (BATCH, s(16, 32)), (P("data"), P())), specs=(P("data"), P(None, "model"))),
    "repeated-work": versus(
        Case(two_layers, (s(64, 16), s(16, 64), s(64, 16)), (P("data"), P(), P()), out=P("data", "model")),
        specs=(P("data"), P(None, "model"), P("model")),
        out=None,
    ),
    "repeated-work/shard_map": versus(
        Case(mapped, (BATCH, s(16, 64)), (P("data"), P(None, "model"))),
        fn=mapped_by_rows,
        specs=(P(("data", "model")), P()),
    ),
    "repeated-work/of its own": versus(Case(mapped, (BATCH, s(16, 64)), (P("data"), P())), fn=of_its_own),
    "slow-order": versus(
        Case(
            two_layers,
            (s(4096, 4096), s(4096, 4096), s(4096, 4096)),
            (P("data"), P(None, "model"), P("model")),
            mesh="model=8,data=2",
            on="gpu h100:2x8",
        ),
        mesh="data=2,model=8",
    ),
    "less-sharded": (stepped(CUT | {"emb": P()}), STEPPED),
    "not-divided": (stepped(ODD, params=model(1025, 255), state=model(1025, 255)), STEPPED),
    "unlike-parameter": (stepped(momentum=CUT | {"emb": P()}), STEPPED),
    "unlike-parameter/across": (stepped(momentum=CUT | {"emb": P("data", "model")}), STEPPED),
    "read-in-slices": versus(
        Case(attends, (s(8, 64, 8, 16), s(8, 1, 8, 16)), (P("data"), P("data", None, "model"))),
        specs=(P("data", None, "model"), P("data", None, "model")),
    ),
    "result-gathered": versus(
        Case(two_results, (BATCH, s(16, 64)), (P("data"), P(None, "model")), out=(P(), P())),
        out=(P("data", "model"), P()),
    ),
    "result-gathered/partitioned": versus(
        Case(
            two_results,
            (BATCH, s(16, 64)),
            (P("data"), P(None, "model")),
            out=(P(), P()),
            level="partitioned",
            on="tpu v5e:2x4",
        ),
        out=None,
        on=None,
    ),
    "summed-each-run": versus(
        Case(accumulates, (s(16, 16), s(8, 32, 16)), (P(), P(None, "data")), out=P()), fn=accumulates_apart
    ),
    "summed-each-run/partitioned": versus(
        Case(accumulates, (s(16, 16), s(8, 32, 16)), (P(), P(None, "data")), out=P(), level="partitioned"),
        specs=(P(), P()),
    ),
    "operands-unlike": versus(
        Case(compared, (BATCH, BATCH), (P("data"), P(None, "data"))), specs=(P("data"), P("data"))
    ),
    "halo": versus(
        Case(convolved, (s(3, 3, 4, 4), IMAGES), (P(), P(None, "data")), level="partitioned"), specs=(P(), P("data"))
    ),
    "conflict/batch": versus(
        Case(experts, (s(8, 16, 32), s(8, 64, 16)), (P("model"), P("data"))), specs=(P("data"), P("data"))
    ),
    "partial-sums": versus(
        Case(logits, (s(16, 512), BATCH), (P("model"), P("data"))), specs=(P(None, "model"), P("data"))
    ),
    "partial-sums/fsdp": versus(
        Case(logits, (s(16, 512), BATCH), (P("model"), P("data"))), specs=(P(("data", "model")), P("data"))
    ),
    "unpaired": versus(
        Case(pair, (s(16, 64), s(64, 16), BATCH), (P(None, "model"), P(None, "model"), P("data"))),
        specs=(P(None, "model"), P("model"), P("data")),
    ),
    # all of `h` is gathered for the queries, which are as many as its features
    "unpaired/gathered": versus(
        Case(queries, (s(16, 64), s(64, 16), s(64, 8), BATCH), (*(P(None, "model"),) * 3, P("data"))),
        args=(s(16, 64), s(64, 16), s(64, 64), BATCH),
    ),
    "comes-back-otherwise": versus(
        Case(cut_again, ({"w": s(64, 64)}, s(8)), ({"w": P("data")}, P())), out=({"w": P("data")}, P())
    ),
    "not-donated": versus(Case(keeps, ({"w": s(1024, 1024)}, s(8, 64)), ({"w": P()}, P())), options=DONATED),
    "laid-otherwise": versus(
        Case(looked_up, (s(2**14, 2880), s(64, dtype=jnp.int32)), (P(), P()), on="tpu v5e:2x4"),
        args=(s(2**14, 3072), s(64, dtype=jnp.int32)),
    ),
    "kept-dominates": versus(
        Case(layers, (s(8, 64, 64), s(4096, 64)), (P(), P("data"))), args=(s(8, 64, 64), s(16, 64))
    ),
    "kept-whole": versus(
        Case(layers, (s(8, 64, 64), s(4096, 64)), (P(), P("data"))), specs=(P(), P(("data", "model")))
    ),
    "too-much": versus(
        Case(plain_product, (s(2**17, 2**16), s(2**16, 2**10)), (P(), P(None, "model")), on="tpu v5e:2x4"),
        args=(s(2**12, 2**12), s(2**12, 2**12)),
    ),
}
"""Rule → a program in which it must find something, and one in which it must not."""

"""Programs of packages that others wrote, as they are, under plans with one fault each; no shardviz in it.

Each needs a package of its own, so each plan is made only where it is asked for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import PartitionSpec as P

from tests.raw import array
from tests.study.bad_plans import BATCH, BF16, DE, DM, INT32, Bad
from tests.study.library_bad_plans import KEY, NARROW, arrays_of

BOTH = P(("data", "model"))


@dataclass(frozen=True)
class Stranger:
    """A bad plan of a package's program, which is made where the package is installed.

    Attributes:
        package: the module that is imported.
        install: what `pip install --no-deps` installs it with.
        make: the bad plan.
    """

    package: str
    install: str
    make: Callable[[], Bad]

    @property
    def missing(self) -> str:
        """Why the plan cannot be made; empty if it can."""
        found = importlib.util.find_spec(self.package) is not None
        return "" if found else f"{self.package} is not installed: pip install --no-deps {self.install}"


OF_STRANGERS: dict[str, Stranger] = {}


def of_package(package: str, install: str, name: str) -> Callable[[Callable[[], Bad]], Callable[[], Bad]]:
    """Add a plan to the table, by its name."""

    def add(make: Callable[[], Bad]) -> Callable[[], Bad]:
        OF_STRANGERS[name] = Stranger(package, install, make)
        return make

    return add


def stepped(loss, params, *args):
    """One step of gradient descent."""
    return jax.tree.map(lambda p, g: p - (0.1 * g).astype(p.dtype), params, jax.grad(loss)(params, *args))


def resnet():
    """A step of Haiku's ResNet-18, and its arguments."""
    import haiku as hk

    net = hk.transform_with_state(lambda x: hk.nets.ResNet18(1000)(x, is_training=True))
    images, labels = array(256, 128, 128, 3), array(256, dtype=INT32)
    params, state = jax.eval_shape(net.init, KEY, images)

    def train(params, state, images, labels):
        def loss(params, images):
            logits, _ = net.apply(params, state, None, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        return stepped(loss, params, images)

    return train, (params, state, images, labels)


@of_package("haiku", "dm-haiku jmp tabulate", "kernels of Haiku's ResNet-18 by their output channels")
def kernels() -> Bad:
    train, args = resnet()
    by_output = jax.tree.map(lambda a: P(None, None, None, "model") if a.ndim == 4 else P(), args[0])
    return Bad(
        train,
        args,
        DM,
        (by_output, P(), BATCH, BATCH),
        r"params\[.*'w'\]|convolution.*model|batch along data and model|batch .*model",
        good=(P(), P(), BOTH, BOTH),
    )


@of_package("haiku", "dm-haiku jmp tabulate", "images of Haiku's ResNet-18 along one axis, labels along both")
def images() -> Bad:
    return Bad(*resnet(), DM, (P(), P(), BATCH, BOTH), r"\bimages\b", good=(P(), P(), BOTH, BOTH))


@of_package("haiku", "dm-haiku jmp tabulate", "vectors of Haiku's quantiser sharded along their features")
def quantiser() -> Bad:
    import haiku as hk

    def quantise(vectors):
        found = hk.nets.VectorQuantizer(512, 8192, 0.25, dtype=BF16)(vectors, is_training=True)
        return found["quantize"], found["loss"]

    net, vectors = hk.without_apply_rng(hk.transform(quantise)), array(65536, 512, dtype=BF16)
    return Bad(
        net.apply,
        (jax.eval_shape(net.init, KEY, vectors), vectors),
        {"data": 8},
        (P(), P(None, "data")),
        r"batch along data in vectors|vectors",
        good=(P(), BATCH),
    )


@of_package("mamba2_jax", "mamba2-jax", "fused projection of Mamba-2 sharded along what is split")
def mamba() -> Bad:
    import mamba2_jax

    config = mamba2_jax.Mamba2Config(hidden_size=2048, num_hidden_layers=2, vocab_size=32768)
    graph, params = nnx.split(nnx.eval_shape(lambda: mamba2_jax.Mamba2ForCausalLM(config, rngs=nnx.Rngs(0))))
    tokens = array(8, 2048, dtype=INT32)

    def train(params, tokens):
        return stepped(lambda params: nnx.merge(graph, params)(tokens, labels=tokens)["loss"], params)

    named = {"in_proj": P(None, "model"), "out_proj": P("model")}
    specs = jax.tree.map_with_path(
        lambda path, _: next((spec for name, spec in named.items() if f"'{name}'" in str(path)), P()), params
    )
    return Bad(
        train, (params, tokens), DM, (specs, BATCH), r"in_proj|batch .*along .*model|'model' repeat", good=(P(), BOTH)
    )


@of_package("nano_moe", "nano-moe-jax", "tokens of NanoMoE not along the experts' axis")
def nano() -> Bad:
    import nano_moe

    config = nano_moe.NanoMoEConfig(
        vocab_size=32768, n_layers=2, n_heads=16, d_model=2048, d_ff=8192, n_experts=4, block_size=1024
    )
    model, tokens = nano_moe.NanoMoE(config), array(8, 1024, dtype=INT32)
    params = jax.eval_shape(model.init, KEY, tokens)

    def train(params, tokens, labels):
        def loss(params):
            logits, extra = model.apply(params, tokens)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean() + extra

        return stepped(loss, params)

    both = P(("data", "expert"))
    return Bad(
        train,
        (params, tokens, tokens),
        DE,
        (P(), BATCH, BATCH),
        r"axis 'expert'|'expert' repeat|batch .*along .*expert",
        good=(P(), both, both),
    )


@of_package("jraph", "jraph", "nodes of Jraph's network sharded against their edges")
def graph() -> Bad:
    import jraph

    features = 1024
    params = {
        name: array(features, features, dtype=BF16) for name in ("edge", "sender", "receiver", "node", "sent", "got")
    }
    nodes, edges = array(65536, features, dtype=BF16), array(262144, features, dtype=BF16)
    ends = array(262144, dtype=INT32)

    def apply(params, nodes, edges, senders, receivers):
        def of_edges(edge, sent, received, _):
            return jax.nn.gelu(edge @ params["edge"] + sent @ params["sender"] + received @ params["receiver"])

        def of_nodes(node, sent, received, _):
            return jax.nn.gelu(node @ params["node"] + sent @ params["sent"] + received @ params["got"])

        net = jraph.GraphNetwork(of_edges, of_nodes)
        count = jnp.array([nodes.shape[0]]), jnp.array([edges.shape[0]])
        after = net(jraph.GraphsTuple(nodes, edges, receivers, senders, None, *count))
        return after.nodes, after.edges

    return Bad(
        apply,
        (params, nodes, edges, ends, ends),
        DM,
        (dict.fromkeys(params, P("model")), P(None, "model"), P("data", "model"), BATCH, BATCH),
        r"\bnodes\b|\bedges\b|\bsenders\b|params",
        good=(dict.fromkeys(params, P()), BOTH, BOTH, BOTH, BOTH),
    )


@of_package("pdequinox", "pdequinox", "fields of a Fourier operator sharded along a transformed dimension")
def operator() -> Bad:
    import pdequinox

    weights, other = arrays_of(lambda key: pdequinox.arch.ClassicFNO(2, 1, 1, hidden_channels=64, key=key))
    fields = array(64, 1, 256, 256)

    def train(weights, fields, after):
        loss = lambda weights: jnp.mean((jax.vmap(eqx.combine(weights, other))(fields) - after) ** 2)
        return stepped(loss, weights)

    sliced = P(None, None, "data")
    return Bad(
        train,
        (weights, fields, fields),
        {"data": 8},
        (P(), sliced, sliced),
        r"batch along data in (fields|after)",
        good=(P(), BATCH, BATCH),
    )


@of_package("equimo", "equimo==1.1.0 einops", "images of a vision transformer along their height")
def vision() -> Bad:
    from equimo.models import VisionTransformer

    make = lambda key: VisionTransformer(256, 3, 1024, 16, 16, [2], reg_tokens=0, key=key)
    weights, other = arrays_of(make)
    images = array(64, 3, 256, 256, dtype=BF16)

    def classify(weights, images):
        model = eqx.combine(weights, other)
        return jax.vmap(lambda image: model(image, inference=True))(images)

    return Bad(
        classify,
        (NARROW(weights), images),
        {"data": 8},
        (P(), P(None, None, "data")),
        r"batch along data in images|images",
        good=(P(), BATCH),
    )

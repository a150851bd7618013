"""Decoders as published recipes train them: the models, checkpoint policies, kernels and optimizer by their names.

    decoder_of("llama3.1-70b", batch=2, mesh="fsdp=64", remat="full", attention="splash")

One block, scanned over stacked layers, serves all models: grouped-query heads, a gated or plain feed-forward block or a
mixture of experts with a capacity, attention as products or as the TPU's splash kernel, checkpointing and offloading by
MaxText's names (https://github.com/AI-Hypercomputer/maxtext), and AdamW with clipped gradients.

The mesh axes are `data` (between slices), `fsdp` and `expert`, which shard the batch, `context` (the sequence) and
`tensor` (heads, feed-forward features, vocabulary); `fsdp` and `context` shard every weight too, along the model's
width.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec as P

from shardviz import _jax
from shardviz.errors import ShardvizError
from shardviz.gallery.example import Example, mesh_of
from shardviz.gallery.llama import attention as plain_attention
from shardviz.gallery.llama import rms_norm, rotary


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a decoder.

    Attributes:
        d_model, layers, heads, kv_heads, d_ff, vocabulary, head_dim: the usual sizes.
        gated: whether the feed-forward block multiplies two products.
        experts: experts per layer; 0 for a dense feed-forward block.
        top: experts for a token.
        positions: the number of learned positions; 0 for rotary positions.
        tied: whether the embedding also computes the logits.
        parallel: whether attention and the feed-forward block have the same input.
        fused: whether one product computes queries, keys and values, and one computes the gate and its factor.
    """

    d_model: int
    layers: int
    heads: int
    kv_heads: int
    d_ff: int
    vocabulary: int = 32000
    head_dim: int = 128
    gated: bool = True
    experts: int = 0
    top: int = 2
    positions: int = 0
    tied: bool = False
    parallel: bool = False
    fused: bool = False

    @property
    def weights(self) -> dict[str, tuple[tuple[int, ...], P]]:
        """The shape and spec of each weight of a layer, by name, without the layers' own dimension."""
        d, f, k, wide = self.d_model, self.d_ff, self.head_dim, ("fsdp", "context")
        ups = ("gate", "up") if self.gated else ("up",)
        table: dict[str, tuple[tuple[int, ...], P]] = {
            "norm1": ((d,), P()),
            "query": ((d, self.heads, k), P(wide, "tensor")),
            "key": ((d, self.kv_heads, k), P(wide, "tensor")),
            "value": ((d, self.kv_heads, k), P(wide, "tensor")),
            "out": ((self.heads, k, d), P("tensor", None, wide)),
        }
        table |= {} if self.parallel else {"norm2": ((d,), P())}
        if self.fused:
            table = {name: row for name, row in table.items() if name not in ("query", "key", "value")}
            table["qkv"] = (d, 3, self.heads, k), P(wide, None, "tensor")
            return table | {"gate_up": ((d, 2, f), P(wide, None, "tensor")), "down": ((f, d), P("tensor", wide))}
        if not self.experts:
            return table | {name: ((d, f), P(wide, "tensor")) for name in ups} | {"down": ((f, d), P("tensor", wide))}
        table |= {name: ((self.experts, d, f), P("expert", wide, "tensor")) for name in ups}
        down = (self.experts, f, d), P("expert", "tensor", wide)
        return table | {"down": down, "router": ((d, self.experts), P(wide))}

    @property
    def ends(self) -> dict[str, tuple[tuple[int, ...], P]]:
        """The shape and spec of each weight outside the layers, by name."""
        d, wide = self.d_model, ("fsdp", "context")
        table = {"embedding": ((self.vocabulary, d), P("tensor", wide)), "norm": ((d,), P())}
        table |= {"positions": ((self.positions, d), P(None, wide))} if self.positions else {}
        return table if self.tied else table | {"logits": ((d, self.vocabulary), P(wide, "tensor"))}

    @property
    def parameters(self) -> int:
        """The number of trainable parameters."""

        def sizes(table):
            return sum(math.prod(shape) for shape, _ in table.values())

        return self.layers * sizes(self.weights) + sizes(self.ends)


TABLE: Mapping[str, Any] = tomllib.loads((files("shardviz.gallery") / "programs.toml").read_text(encoding="utf-8"))
"""`programs.toml`: the sizes of models, and the measured steps."""
MODELS = {name: Shape(**sizes) for name, sizes in TABLE["models"].items()}
"""Published models, and MaxText's family of scales (`global_parameter_scale`)."""

_QKV = ("query_proj", "key_proj", "value_proj")
_DOTS = (*_QKV, "out_proj", "mlpwi_0", "mlpwi_1", "mlpwo")
NAMES = ("decoder_layer_input", "context", *_DOTS)
"""The names for checkpoint policies, as in MaxText: the layer's input, attention's result, and each product."""

REMAT = {
    "full": (),
    "minimal": _DOTS,
    "minimal_flash": (*_DOTS, "context"),
    "save_dot_except_mlp": (*_QKV, "out_proj"),
    "save_dot_except_mlpwi": (*_QKV, "out_proj", "mlpwo"),
    "save_dot_with_context_except_mlp": (*_QKV, "context", "out_proj"),
    "save_qkv_proj": _QKV,
    "save_out_proj": ("out_proj",),
}
"""MaxText's checkpoint policies, and the names that each keeps."""


_BATCH = ("data", "fsdp", "expert")


@dataclass(frozen=True, kw_only=True, eq=False)
class Decoder:
    """A decoder's step and its settings; the fields are `decoder_of`'s."""

    shape: Shape
    mesh: Mapping[str, int]
    sequences: int
    sequence: int
    keep: tuple[str, ...] = ()
    offload: tuple[str, ...] = ()
    attention: str = "plain"
    blocks: int = 2048
    fused_backward: bool = True
    one_hot: bool = False
    vocabulary_tiles: int = 1
    capacity: float = 1.25
    weights: Any = jnp.float32
    moments: Any = jnp.float32
    unroll: bool = False

    def spec(self, *entries: Any) -> P:
        """Return a spec without the axes that are not in the mesh."""
        inside = (
            tuple(axis for axis in ((entry,) if isinstance(entry, str) else entry or ()) if axis in self.mesh)
            for entry in entries
        )
        return P(*(entry[0] if len(entry) == 1 else entry or None for entry in inside))

    def constrain(self, x: Any, *features: Any) -> Any:
        """Constrain activations, batch x sequence x features, to be sharded along batch and sequence."""
        return jax.lax.with_sharding_constraint(x, self.spec(_BATCH, "context", *features))

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        """Apply causal attention, as products or by a kernel."""
        if self.attention == "plain":
            return checkpoint_name(plain_attention(q, k, v), "context")
        if self.attention == "cudnn":
            rows = self.spec(_BATCH, None, "tensor")
            local = jax.shard_map(_jax.cudnn_attention, in_specs=(rows,) * 3, out_specs=rows, check_vma=False)
            return checkpoint_name(local(q, k, v), "context")
        q = q / math.sqrt(self.shape.head_dim)
        kernel = _kernel(self)
        queries = kernel.manual_sharding_spec(
            jax.sharding.NamedSharding(jax.sharding.get_abstract_mesh(), self.spec("tensor", "context"))
        )
        rows, whole = self.spec(_BATCH, "tensor", "context"), self.spec(_BATCH, "tensor")

        @partial(jax.shard_map, in_specs=(queries, rows, whole, whole), out_specs=rows, check_vma=False)
        def run(kernel: Any, q: Any, k: Any, v: Any) -> Any:
            return jax.vmap(kernel)(q, k, v)

        return run(kernel, *(x.transpose(0, 2, 1, 3) for x in (q, k, v))).transpose(0, 2, 1, 3)

    def block(self, x: Any, p: Mapping[str, Any]) -> Any:
        """Apply one layer."""
        x = checkpoint_name(self.constrain(x, "tensor"), "decoder_layer_input")
        h = rms_norm(x, p["norm1"])
        if self.shape.fused:
            q, k, v = jnp.einsum("btd,dnhk->nbthk", h, p["qkv"])
        else:
            q, k, v = (jnp.einsum("btd,dhk->bthk", h, p[name]) for name in ("query", "key", "value"))
        if not self.shape.positions:
            q, k = rotary(q), rotary(k)
        q, k, v = (checkpoint_name(self.constrain(x, "tensor"), name) for x, name in zip((q, k, v), _QKV, strict=True))
        a = jnp.einsum("bthk,hkd->btd", self.attend(q, k, v), p["out"])
        a = checkpoint_name(self.constrain(a, "tensor"), "out_proj")
        if not self.shape.parallel:
            x, a = x + a, 0
            h = rms_norm(x, p["norm2"])
        wide = self.mixture(h, p) if self.shape.experts else self.feed_forward(h, p, "btd", "btf", "")
        return x + a + self.constrain(wide, "tensor")

    def feed_forward(self, h: Any, p: Mapping[str, Any], wide: str, inner: str, expert: str) -> Any:
        """Apply the feed-forward block to tokens, or to each expert's tokens; the letters are those of `einsum`."""
        hold = self.at_experts if expert else self.constrain
        if self.shape.fused:
            gate, up = jnp.einsum("btd,dnf->nbtf", h, p["gate_up"])
        else:

            def product(name):
                return hold(jnp.einsum(f"{wide},{expert}df->{inner}", h, p[name]), "tensor")

            gate, up = product("gate") if self.shape.gated else None, product("up")
        up = checkpoint_name(up, "mlpwi_1")
        g = jax.nn.gelu(up) if gate is None else jax.nn.silu(checkpoint_name(gate, "mlpwi_0")) * up
        return checkpoint_name(jnp.einsum(f"{inner},{expert}fd->{wide}", hold(g, "tensor"), p["down"]), "mlpwo")

    def at_experts(self, x: Any, *features: Any) -> Any:
        """Constrain the experts' inputs, experts x sequences x places x features, to the experts' devices."""
        return jax.lax.with_sharding_constraint(x, self.spec("expert", ("data", "fsdp"), None, *features))

    @property
    def places(self) -> int:
        """Places that an expert has for one sequence's tokens; tokens beyond these are dropped."""
        return max(1, int(self.sequence * self.shape.top / self.shape.experts * self.capacity))

    def mixture(self, h: Any, p: Mapping[str, Any]) -> Any:
        """Apply a mixture of experts: products move each sequence's tokens to places of their experts and back."""
        chance = jax.nn.softmax(jnp.einsum("btd,de->bte", h, p["router"]).astype(jnp.float32))
        weight, expert = jax.lax.top_k(chance, self.shape.top)
        weight = weight / weight.sum(axis=-1, keepdims=True)
        chosen = jax.nn.one_hot(expert, self.shape.experts, dtype=jnp.int32)
        order = jnp.cumsum(chosen.sum(axis=2), axis=1) - 1
        share = (chosen * weight[..., None]).sum(axis=2)
        place = jax.nn.one_hot(jnp.where(chosen.sum(axis=2) > 0, order, -1), self.places, dtype=h.dtype)
        away = self.at_experts(jnp.einsum("btd,btec->ebcd", h, self.constrain(place)))
        away = self.at_experts(self.feed_forward(away, p, "ebcd", "ebcf", "e"))
        return jnp.einsum("ebcd,btec->btd", away, place * share.astype(h.dtype)[..., None])

    @property
    def policy(self) -> Any:
        """The checkpoint policy."""
        if self.offload:
            return jax.checkpoint_policies.save_and_offload_only_these_names(
                names_which_can_be_saved=list(self.keep),
                names_which_can_be_offloaded=list(self.offload),
                offload_src="device",
                offload_dst="pinned_host",
            )
        return jax.checkpoint_policies.save_only_these_names(*self.keep) if self.keep else None

    def hidden(self, params: Mapping[str, Any], tokens: Any) -> Any:
        """Return the features of every token after the last layer."""
        table = params["embedding"]
        one_hot = partial(jax.nn.one_hot, num_classes=self.shape.vocabulary, dtype=table.dtype)
        x = (
            jnp.einsum("btv,vd->btd", self.constrain(one_hot(tokens), "tensor"), table)
            if self.one_hot
            else table[tokens]
        )
        if self.shape.positions:
            x = x + params["positions"][: self.sequence]
        block = jax.checkpoint(self.block, policy=self.policy, prevent_cse=self.unroll)
        x, _ = jax.lax.scan(
            lambda x, p: (block(x, p), None), self.constrain(x, "tensor"), params["layers"], unroll=self.unroll
        )
        return rms_norm(x, params["norm"])

    def loss(self, params: Mapping[str, Any], tokens: Any) -> Any:
        """Return the mean cross-entropy of each next token."""
        params = jax.tree.map(lambda p: p.astype(jnp.bfloat16) if jnp.dtype(self.weights) == jnp.float32 else p, params)
        last = params["embedding"].T if self.shape.tied else params["logits"]
        x, targets = self.hidden(params, tokens), jnp.roll(tokens, -1, axis=1)

        def entropy(x: Any, targets: Any) -> Any:
            logits = self.constrain(jnp.einsum("btd,dv->btv", x, last), "tensor").astype(jnp.float32)
            correct = jnp.sum(logits * jax.nn.one_hot(targets, self.shape.vocabulary), axis=-1)
            return jnp.sum(jax.nn.logsumexp(logits, axis=-1) - correct)

        tiles = self.vocabulary_tiles
        if tiles == 1:
            return entropy(x, targets) / targets.size

        def tiled(x):
            return jnp.moveaxis(x.reshape(x.shape[0], tiles, -1, *x.shape[2:]), 1, 0)

        each = jax.checkpoint(entropy)
        return jnp.sum(jax.lax.map(lambda tile: each(*tile), (tiled(x), tiled(targets)))) / targets.size

    def train_step(self, params: Any, first: Any, second: Any, tokens: Any) -> tuple[Any, Any, Any, Any]:
        """Take a step of AdamW with gradients clipped to norm 1; return new parameters, new moments and the loss."""
        loss, grads = jax.value_and_grad(self.loss)(params, tokens)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g.astype(jnp.float32))) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: (g * jnp.minimum(1.0, 1.0 / norm)).astype(self.moments), grads)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda n, g: 0.95 * n + 0.05 * g * g, second, grads)

        def update(p, m, n):
            return p - (3e-5 * (m / (jnp.sqrt(n) + 1e-8) + 0.1 * p)).astype(p.dtype)

        return jax.tree.map(update, params, first, second), first, second, loss

    @property
    def pairs(self) -> int:
        """Pairs of tokens that attention multiplies per sequence and head: all pairs, or the pairs in kernel tiles."""
        if self.attention == "plain":
            return self.sequence**2
        size = min(128 if self.attention == "cudnn" else self.blocks, self.sequence)
        return size**2 * sum(range(1, self.sequence // size + 1))

    @property
    def kernels(self) -> dict[str, float]:
        """FLOPs of one run of each kernel on a device: two products forward, and five or seven backward."""
        if self.attention == "plain":
            return {}
        cut = math.prod(self.mesh.get(axis, 1) for axis in (*_BATCH, "tensor", "context"))
        product = 2.0 * self.sequences * self.shape.heads * self.pairs * self.shape.head_dim / cut
        if self.attention == "cudnn":
            return {"__cudnn$fmhaSoftmax": 2 * product, "__cudnn$fmhaSoftmaxBackward": 5 * product}
        counts = {"fwd_residuals": 2, "fwd_no_residuals": 2, "dkv_no_residuals": 5 if self.fused_backward else 4}
        counts |= {} if self.fused_backward else {"dq_no_residuals": 3}
        return {f"splash_mha_{name}": count * product for name, count in counts.items()}

    def step_flops(self) -> tuple[float, float]:
        """Return the FLOPs of a step's products, kernels included, and those that the model needs.

        With `t` tokens and heads of `k` features, one forward pass of a layer has:

            projections  = 2 t d_model k heads for queries, and for the output; kv_heads for keys, and for values
            attention    = 4 pairs heads k                        scores, and values weighted by the scores
            feed-forward = 2 t d_model d_ff, three times if gated, else twice; with experts, t is all their places

        and the logits have 2 t d_model vocabulary. The backward pass has two products for each. It also repeats the
        forward products whose results it needs and no policy keeps, which excludes a block's last product unless
        experts' results are weighted. The splash kernel has five or seven products backward for its two. Products of
        2 t places d_model move a mixture's tokens to their places and back.

        The model needs three times one forward pass, with all of attention's pairs and `top` experts for a token.
        """
        s, d, k = self.shape, self.shape.d_model, self.shape.head_dim
        t = float(self.sequences * self.sequence)
        into = 2 * t * d * k
        pair = 4.0 * self.sequences * k * s.heads
        ups = ("mlpwi_0", "mlpwi_1") if s.gated else ("mlpwi_1",)
        wide = 2 * d * s.d_ff * (self.sequences * self.places * s.experts if s.experts else t)
        # name, forward FLOPs, backward as a multiple of forward, and whether the backward pass needs the result
        table = [("query_proj", into * s.heads, 2.0, True), ("out_proj", into * s.heads, 2.0, not s.parallel)]
        table += [(name, into * s.kv_heads, 2.0, True) for name in ("key_proj", "value_proj")]
        if self.attention == "plain":
            table += [(name, pair * self.pairs / 2, 2.0, True) for name in ("scores", "context")]
        elif self.attention == "cudnn":  # its log-sum-exp has no name, so it is rematerialised
            table += [("kernel", pair * self.pairs, 2.5, True)]
        else:
            table += [("context", pair * self.pairs, 2.5 if self.fused_backward else 3.5, True)]
        table += [*((name, wide, 2.0, True) for name in ups), ("mlpwo", wide, 2.0, s.experts > 0)]
        if s.experts:
            carried = 2 * t * s.experts * self.places * d
            table += [("router", 2 * t * d * s.experts, 2.0, True)]
            table += [("to places", carried, 1.0, True), ("from places", carried, 2.0, False)]
        kept, last = {*self.keep, *self.offload}, 2 * t * d * s.vocabulary
        done = s.layers * sum(f * (1 + back + (again and name not in kept)) for name, f, back, again in table)
        done += last * (3 if self.vocabulary_tiles == 1 else 4) + 2 * last * self.one_hot
        layer = into * (2 * s.heads + 2 * s.kv_heads) + pair * self.sequence**2
        layer += (len(ups) + 1) * 2 * t * d * s.d_ff * (s.top if s.experts else 1) + 2 * t * d * s.experts
        return done, 3 * (s.layers * layer + last)


def _kernel(decoder: Decoder) -> Any:
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash  # for TPUs only
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    size, length = min(decoder.blocks, decoder.sequence), decoder.sequence
    names = ("block_q", "block_kv", "block_kv_compute", "block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute")
    names += () if decoder.fused_backward else ("block_q_dq", "block_kv_dq")
    return splash.make_splash_mha(
        mask=masks.MultiHeadMask([masks.CausalMask((length, length))] * decoder.shape.heads),
        block_sizes=splash.BlockSizes(**dict.fromkeys(names, size), use_fused_bwd_kernel=decoder.fused_backward),
        head_shards=decoder.mesh.get("tensor", 1),
        q_seq_shards=decoder.mesh.get("context", 1),
        residual_checkpoint_name="context",
    )


def decoder_of(
    model: str | Shape = "llama3.1-8b",
    *,
    batch: float = 1,
    sequence: int = 8192,
    mesh: Any = None,
    remat: str | Sequence[str] = "full",
    offload: Sequence[str] = (),
    attention: str = "plain",
    blocks: int = 2048,
    fused_backward: bool = True,
    one_hot: bool = False,
    vocabulary_tiles: int = 1,
    capacity: float = 1.25,
    weights: Any = jnp.float32,
    moments: Any = None,
    layers: int | None = None,
    unroll: bool = False,
) -> Example:
    """Return a published decoder's train step.

    Args:
        model: one of `MODELS`, or a `Shape` of your own.
        batch: sequences per device of the mesh, as in recipes; may be a fraction.
        sequence: tokens in a sequence.
        mesh: with axes among `data`, `fsdp`, `expert`, `context`, `tensor`; `fsdp=8` if not given.
        remat: a policy of `REMAT`, or the names of `NAMES` to keep.
        offload: the names that are offloaded to the host's memory.
        attention: `plain`; or `splash`, the Pallas kernel of TPUs; or `cudnn`, the kernel of NVIDIA's GPUs.
        blocks: the side of the splash kernel's tiles.
        fused_backward: whether the kernel has one backward pass, not two.
        one_hot: look tokens up by a product with their one-hot rows (MaxText's `use_iota_embed`).
        vocabulary_tiles: the number of parts of each sequence whose logits are computed one after the other.
        capacity: an expert's places as a multiple of its tokens when all experts have equally many.
        weights: element type of the weights; activations are bfloat16.
        moments: element type of Adam's moments; the weights' type if not given.
        layers: the number of layers; the model's own if not given.
        unroll: write the layers out one after the other instead of scanning over them.

    Raises:
        ShardvizError: for an unknown model, policy, name, kind of attention or mesh axis, and for a batch or a
            sequence that does not divide.
    """
    shape = model if isinstance(model, Shape) else _one_of(MODELS, model, "model")
    shape = shape if layers is None else dataclasses.replace(shape, layers=layers)
    sizes = mesh_of(mesh, {"fsdp": 8})
    for name, choices, what in (
        *((axis, (*_BATCH, "context", "tensor"), "mesh axis") for axis in sizes),
        *((name, NAMES, "name of a kept value") for name in (*offload, *(() if isinstance(remat, str) else remat))),
        (attention, ("plain", "splash", "cudnn"), "attention"),
    ):
        _one_of(dict.fromkeys(choices), name, what)
    sequences, across = batch * math.prod(sizes.values()), math.prod(sizes.get(axis, 1) for axis in _BATCH)
    if sequences % across or sequence % (vocabulary_tiles * sizes.get("context", 1)):
        raise ShardvizError(
            f"decoder_of: {sequences:g} sequences over {across} devices, each of {sequence} tokens in "
            f"{vocabulary_tiles} tiles over {sizes.get('context', 1)} devices: both must divide"
        )
    decoder = Decoder(
        shape=shape,
        mesh=sizes,
        sequences=int(sequences),
        sequence=sequence,
        keep=_one_of(REMAT, remat, "policy") if isinstance(remat, str) else tuple(remat),
        offload=tuple(offload),
        attention=attention,
        blocks=blocks,
        fused_backward=fused_backward,
        one_hot=one_hot,
        vocabulary_tiles=vocabulary_tiles,
        capacity=capacity,
        weights=weights,
        moments=moments or weights,
        unroll=unroll,
    )
    stacked = {name: ((shape.layers, *dims), P(None, *spec)) for name, (dims, spec) in shape.weights.items()}
    tables = shape.ends | {"layers": stacked}

    def arrays_of(dtype):
        return _each(tables, lambda dims, _: jax.ShapeDtypeStruct(dims, dtype))

    specs = _each(tables, lambda _, spec: decoder.spec(*spec))
    params, moment = arrays_of(decoder.weights), arrays_of(decoder.moments)
    tokens = jax.ShapeDtypeStruct((decoder.sequences, sequence), jnp.int32)
    return Example(
        decoder.train_step,
        (params, moment, moment, tokens),
        sizes,
        (specs, specs, specs, decoder.spec(_BATCH, "context")),
        (specs, specs, specs, None),
        {"donate_argnums": (0, 1, 2)},
        shape.parameters,
        decoder.sequences * sequence,
        *decoder.step_flops(),
        kernels=decoder.kernels,
    )


def _each(tables: Mapping[str, Any], leaf: Any) -> dict[str, Any]:
    """Return the tree of weights, with each leaf computed from a shape and a spec."""
    return {name: _each(row, leaf) if isinstance(row, dict) else leaf(*row) for name, row in tables.items()}


def _one_of(table: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in table:
        raise ShardvizError(f"{what} {name!r}: decoder_of has {', '.join(map(repr, table))}")
    return table[name]

"""The gallery's flax.nnx models; flax is imported only when `decoder` is called."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from shardviz.errors import ShardvizError
from shardviz.gallery.example import Example, fitted, mesh_of
from shardviz.tracing.meshes import mesh as abstract


def step_flops(
    *, vocabulary: int, layers: int, d_model: int, d_ff: int, batch: int, length: int
) -> tuple[float, float]:
    """FLOPs of a step's matrix products, and those that the model needs; here they are the same.

    With `t = batch x length` tokens, one forward pass has:

        weights   = 2 t (4 d_model^2 + 2 d_model d_ff)   per layer
        attention = 4 t length d_model                   per layer: scores, and values weighted by the scores
        logits    = 2 t d_model vocabulary

        flops = model_flops = 3 (layers (weights + attention) + logits)      two thirds of it for the gradients

    This is 6 x parameters x tokens, and attention. Attention counts in full, since masked scores are computed too
    (Chowdhery et al., 2022, "PaLM", appendix B). Nothing is rematerialised.
    """
    t = batch * length
    layer = 2.0 * t * (4 * d_model * d_model + 2 * d_model * d_ff) + 4.0 * t * length * d_model
    needed = 3 * (layers * layer + 2.0 * t * d_model * vocabulary)
    return needed, needed


def decoder(
    *,
    vocabulary: int = 32768,
    layers: int = 4,
    d_model: int = 1024,
    d_ff: int = 4096,
    heads: int = 16,
    batch: int = 64,
    length: int = 1024,
    dtype: Any = jnp.bfloat16,
    mesh: Any = None,
) -> Example:
    """Return a decoder transformer's train step in flax.nnx with Adam; it updates model and optimizer in place.

    Args:
        vocabulary, layers, d_model, d_ff, heads: the model's sizes.
        batch: sequences in a step.
        length: tokens in a sequence.
        dtype: element type of activations; weights and moments are float32.
        mesh: a mesh with axes `data` and `model`; `data=4,model=2` if not given.

    Returns:
        The `Example`. The model's variables carry the specs, so `in_specs` is None.

    Raises:
        ShardvizError: without flax and optax, or if the mesh has no axis `data` or `model`.
    """
    try:
        from shardviz.gallery import flax_decoder
    except ImportError as error:
        raise ShardvizError(f"gallery.decoder needs flax and optax: pip install 'shardviz[flax]' ({error})") from error
    mesh = mesh_of(mesh, {"data": 4, "model": 2})
    if missing := {"data", "model"} - set(mesh):
        raise ShardvizError(f"decoder(mesh): its weights are over 'data' and 'model'; {missing} is not in {mesh}")
    sizes = {"vocabulary": vocabulary, "layers": layers, "d_model": d_model, "d_ff": d_ff}
    model, optimizer = flax_decoder.abstract(**sizes, heads=heads, dtype=dtype)
    rows = NamedSharding(abstract(mesh), fitted((batch, length), P("data"), mesh))
    tokens = jax.ShapeDtypeStruct((batch, length), jnp.int32, sharding=rows)
    return Example(
        flax_decoder.train_step,
        (model, optimizer, tokens),
        mesh,
        None,
        None,
        {},
        flax_decoder.count(model),
        batch * length,
        *step_flops(**sizes, batch=batch, length=length),
    )

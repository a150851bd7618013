"""`shardviz report` on layers that others publish, as their packages bring them: linen, flax.nnx and Equinox.

What the report says is what arithmetic says of tensor-parallel attention.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from shardviz.cli import main

B, T, D, H = 8, 128, 512, 8
"""Sequences, tokens of each, width, heads."""

COMMON = f"""\
import jax
import jax.numpy as jnp

B, T, D, H = {B}, {T}, {D}, {H}
x = jax.ShapeDtypeStruct((B, T, D), jnp.float32)
"""

MODELS = {
    "linen": """
from flax import linen as nn

model = nn.MultiHeadDotProductAttention(num_heads=H, qkv_features=D, use_bias=False)
params = jax.eval_shape(model.init, jax.random.key(0), x)


def step(params, x):
    return jax.grad(lambda params: jnp.mean(model.apply(params, x) ** 2))(params)


def arguments():
    return params, x
""",
    "nnx": """
from flax import nnx


def model():
    return nnx.MultiHeadAttention(H, D, use_bias=False, decode=False, rngs=nnx.Rngs(0))


def step(model, x):
    return nnx.grad(lambda model: jnp.mean(model(x) ** 2))(model)


def arguments():
    return nnx.eval_shape(model), x
""",
    "equinox": """
import equinox as eqx

model = eqx.filter_eval_shape(lambda: eqx.nn.MultiheadAttention(H, D, key=jax.random.key(0)))
params, static = eqx.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))


def loss(params, x):
    model = eqx.combine(params, static)
    return jnp.mean(jax.vmap(lambda x: model(x, x, x))(x) ** 2)


def step(params, x):
    return jax.grad(loss)(params, x)


def arguments():
    return params, x
""",
}

_HEADS_FIRST = {"*out*kernel": "P('model')", "*kernel": "P(None, 'model')"}
RULES = {
    "linen": _HEADS_FIRST,
    "nnx": _HEADS_FIRST,
    "equinox": {"*output_proj*weight": "P(None, 'model')", "*weight": "P('model')"},
}
"""Tensor parallel: each device has its heads, of all projections. Equinox keeps a weight as outputs x inputs."""


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_attention_as_it_is_published(name: str, tmp_path: Path, monkeypatch, capsys):
    """Everybody knows what tensor-parallel attention sends: its gradients over data, one sum of outputs over model."""
    module = f"public_{name}"
    (tmp_path / f"{module}.py").write_text(COMMON + MODELS[name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    rules = [word for pattern, spec in RULES[name].items() for word in ("--rule", f"{pattern}={spec}")]
    step = (f"{module}.py:step", "--args", f"{module}.py:arguments", "--mesh", "data=2,model=4", *rules)
    try:
        assert main(["report", *step, "--rule", "x=P('data')", "--target", "tpu v5e:2x4", "--json"]) == 0
    finally:
        sys.modules.pop(module, None)
    report = json.loads(capsys.readouterr().out)
    moved = {axis: [c for c in report["collectives"] if c["axes"] == [axis]] for axis in ("data", "model")}
    assert {c["kind"] for c in report["collectives"]} == {"all-reduce"}
    assert sum(c["operand_bytes"] for c in moved["data"]) == 4 * D * D * 4 / 4  # four kernels, float32, a quarter each
    assert [c["operand_bytes"] for c in moved["model"]] == [B // 2 * T * D * 4]
    assert report["step"]["seconds"] > 0
    projection, mixing = 2 * B * T * D * D / 8, 2 * B * T * T * D / 8
    forward = 4 * projection + 2 * mixing
    backward = 4 * projection + projection + 4 * mixing  # kernels, an input, scores and what is mixed
    assert report["cost"]["dot_flops"] == forward + backward

"""A multilayer perceptron's train step: the smallest program that shows every kind of parallelism."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from shardviz.gallery.example import Example, fitted, mesh_of


def forward(params: list[dict[str, Any]], x: Any) -> Any:
    """Apply a dense layer and a ReLU for each entry of `params`, without a ReLU after the last."""
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss_fn(params: list[dict[str, Any]], x: Any, y: Any) -> Any:
    """Return the mean squared error of the batch."""
    return jnp.mean((forward(params, x) - y) ** 2)


def train_step(params: list[dict[str, Any]], x: Any, y: Any) -> tuple[Any, Any]:
    """Take one step of gradient descent; return the new parameters and the loss."""
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    params = jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)
    return params, loss


def step_flops(widths: tuple[int, ...], batch: int) -> tuple[float, float]:
    """Return the FLOPs of a step's matrix products, and those that the model needs.

        model_flops = 6 x batch x sum over layers (in x out)     forward, and the gradients of weights and inputs
        flops       = model_flops - 2 x batch x in x out of the first layer, for the batch itself needs no gradient

    `widths` are the features of the input, of each hidden layer and of the output.
    """
    needed = 6.0 * batch * sum(a * b for a, b in pairwise(widths))
    return needed - 2.0 * batch * widths[0] * widths[1], needed


def mlp(
    widths: tuple[int, ...] = (1024, 4096, 4096, 256), *, batch: int = 4096, dtype: Any = jnp.float32, mesh: Any = None
) -> Example:
    """Return a perceptron with FSDP over `data` and tensor parallelism over `model`.

    Args:
        widths: the number of features of the input, of each hidden layer, and of the output.
        batch: examples in a step.
        dtype: element type of everything.
        mesh: the mesh to plan for, `data=2,model=4` if not given; axes that do not divide a dimension are left out.

    Returns:
        The `Example`; odd layers are sharded by columns over `model` and even ones by rows, so that pairs need one
        reduction.
    """
    mesh = mesh_of(mesh, {"data": 2, "model": 4})
    params, specs = [], []
    for i, (rows, columns) in enumerate(pairwise(widths)):
        params.append({"w": jax.ShapeDtypeStruct((rows, columns), dtype), "b": jax.ShapeDtypeStruct((columns,), dtype)})
        by_columns = i % 2 == 0 and i < len(widths) - 2
        layer_specs = {"w": P("data", "model"), "b": P("model")} if by_columns else {"w": P("model", "data"), "b": P()}
        specs.append({name: fitted(params[-1][name].shape, spec, mesh) for name, spec in layer_specs.items()})
    x = jax.ShapeDtypeStruct((batch, widths[0]), dtype)
    y = jax.ShapeDtypeStruct((batch, widths[-1]), dtype)
    rows = fitted(x.shape, P("data"), mesh)
    return Example(
        train_step,
        (params, x, y),
        mesh,
        (specs, rows, rows),
        (specs, None),
        {"donate_argnums": 0},
        sum(a * b + b for a, b in pairwise(widths)),
        batch,
        *step_flops(widths, batch),
    )

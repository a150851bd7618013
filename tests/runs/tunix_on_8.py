# ruff: noqa: E402
"""Tunix's weight sync, from a trainer with stacked layers to a sampler with a layer each: run dry, then really on 8
simulated devices, and with the code of `sv.reshard`; a program of its own, which ends with 0 if equal bytes arrive."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types
from typing import ClassVar
from unittest import mock

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that tunix imports, and that this sync does not use, where they are not installed."""

    names: ClassVar = (
        *("clu", "datasets", "dotenv", "fsspec", "grain", "hf_transfer", "huggingface_hub", "jinja2", "kagglehub"),
        *(
            "metrax",
            "numba",
            "omegaconf",
            "pandas",
            "perfetto",
            "pylatexenc",
            "qwix",
            "safetensors",
            "sentencepiece",
            "sympy",
        ),
        *("tenacity", "tensorflow_datasets", "tqdm", "transformers", "wandb"),
    )

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: mock.MagicMock()  # type: ignore[method-assign]
        return module

    def exec_module(self, module):
        module.__path__ = []


sys.meta_path.append(Absent())

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from tunix.generate.utils import transfer_state_with_mappings
from tunix.rl.reshard import reshard_pytree

import shardviz as sv

LAYERS, WIDE, DEEP = 6, 32, 64
MAPPINGS = {"layers.up": ("layers.*.up", (None, "layer", None)), "norm": ("norm", (None,))}
RENAME = {"['layers']['up'].value": "['layers'][*]['up'].value"}


def states(fill):
    """Return the trainer's state and the sampler's: layers stacked in dimension 1 on (4, 2), a layer each on (2, 4)."""
    devices = np.array(jax.devices())
    train, serve = Mesh(devices.reshape(4, 2), ("fsdp", "tp")), Mesh(devices.reshape(2, 4), ("replica", "tp"))
    put = lambda x, mesh, *spec: nnx.Param(jax.device_put(x, NamedSharding(mesh, P(*spec))))
    up, norm = fill((WIDE, LAYERS, DEEP)), fill((WIDE,))
    source = {"layers": {"up": put(up, train, "fsdp", None, "tp")}, "norm": put(norm, train, "fsdp")}
    zeros = np.zeros((WIDE, DEEP), np.float32)
    target = {
        "layers": {n: {"up": put(zeros, serve, None, "tp")} for n in range(LAYERS)},
        "norm": put(np.zeros(WIDE, np.float32), serve),
    }
    return nnx.State(source), nnx.State(target), serve


def arrays(state):
    return {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_flatten_with_path(state)[0]}


def theirs(source, target):
    return transfer_state_with_mappings(source, target, MAPPINGS, reshard_fn=reshard_pytree)


if __name__ == "__main__":
    with sv.dry_run(small=0) as run:
        source, target, _ = states(lambda shape: np.zeros(shape, np.float32))
        moved = sv.reshard(source, None, target, rename=RENAME)
        theirs(source, target)
    assert run.record.transfers, "the run has what tunix moves"
    assert not moved.nowhere and not moved.unfed, (moved.nowhere, moved.unfed)
    assert {leaf.layer_dims for leaf in moved.leaves} == {(None, 1), (None, None)}
    rng = np.random.default_rng(0)
    source, target, serve = states(lambda shape: rng.normal(size=shape).astype(np.float32))
    before = jax.tree.map(lambda x: jnp.array(x), source)
    wanted = arrays(theirs(source, target))
    for way in moved.ways:
        space: dict = {}
        exec(moved.code(way), space)
        got = space["reshard"](
            jax.tree.map(lambda x: jax.device_put(np.asarray(x), x.sharding), before), serve.devices.flat
        )
        assert got.keys() == wanted.keys()
        for path, x in wanted.items():
            assert got[path].sharding.is_equivalent_to(x.sharding, x.ndim), (way.name, path)
            np.testing.assert_array_equal(np.asarray(got[path]), np.asarray(x), way.name)
    print(len(moved.ways), "ways,", len(wanted), "arrays,", moved.moved_bytes, "bytes")

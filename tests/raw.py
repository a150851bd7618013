"""What scripts share that ask raw JAX, in a process of their own: no shardviz in it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np


def array(*shape: int, dtype: Any = "float32", **more: Any) -> jax.ShapeDtypeStruct:
    """An array of which only shape and element type are known."""
    return jax.ShapeDtypeStruct(shape, dtype, **more)


def entries(sharding):
    """The axes of each dimension, as JSON has them."""
    return [[] if e is None else [e] if isinstance(e, str) else list(e) for e in sharding.spec]


def compiled(lowered):
    """(what is compiled, the text that the partitioner made)."""
    with tempfile.TemporaryDirectory() as dumps:
        made = lowered.compile({"xla_dump_to": dumps, "xla_dump_hlo_pass_re": "spmd-partitioning"})
        (text,) = Path(dumps).glob(f"*{lowered.as_text().split()[1][1:]}*after_spmd-partitioning*.txt")
        return made, text.read_text()


def apart(results, expected):
    """How far two trees of arrays are from each other at most, as a part of the largest number of each array."""
    pairs = zip(jax.tree.leaves(results), map(np.asarray, jax.tree.leaves(expected)), strict=True)
    return max(float(np.abs(np.asarray(found) - one).max() / np.abs(one).max()) for found, one in pairs)

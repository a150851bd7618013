"""The part of `jax.experimental.maps` of 2021 and 2022 that `pjit` needs: the mesh.

>>> from shardviz.compat.maps import Mesh
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

__all__ = ["Mesh", "mesh"]


@contextlib.contextmanager
def mesh(devices: Any, axis_names: Sequence[str]) -> Iterator[Mesh]:
    """Enter the mesh of 2021, `with mesh(devices, ("data", "model")):`, whose later form is `with Mesh(...):`."""
    device_mesh = Mesh(np.asarray(devices), tuple(axis_names))
    with jax.set_mesh(device_mesh):  # today's form of `with device_mesh:`
        yield device_mesh

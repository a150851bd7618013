"""Inputs from older JAX: pjit of 2021 and 2022, and files of jax.export."""

import lazy_loader
from jax.sharding import PartitionSpec as PartitionSpec

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["maps", "pjit"])

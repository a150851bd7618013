"""MLIR's bindings, and the dialects of StableHLO and Shardy.

`jax.extend.mlir` has the same. But the newest JAX's `jax.extend` imports Pallas, which adds to the key by which JAX
keeps traces and compiled programs. Everything that a person compiled before would be compiled once more.
"""

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager

__all__ = ["PassManager", "chlo", "ir", "sdy", "stablehlo"]

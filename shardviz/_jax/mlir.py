"""MLIR's bindings, and the dialects of StableHLO and Shardy.

`jax.extend.mlir` has the same names. But the newest JAX's `jax.extend` imports Pallas, which changes the key of JAX's
caches, so that all of the user's earlier programs would be compiled again.
"""

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager

__all__ = ["PassManager", "chlo", "ir", "sdy", "stablehlo"]

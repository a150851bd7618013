"""The one room that touches JAX's private parts. It is tried on the oldest and the newest JAX that we support.

Everything here is small and says what it stands on. What has no public way is, above all, to rewrite the shardings
inside a traced program, to have an MLIR context of our own, to compile a module for simulated devices or for a machine
that is not there, with XLA's dumps, and to read what an exported file or an executable says of itself.
"""

from shardviz._jax.checkpoints import *
from shardviz._jax.compiling import *
from shardviz._jax.contexts import *
from shardviz._jax.exports import *
from shardviz._jax.jaxprs import *
from shardviz._jax.lowering import *
from shardviz._jax.marking import *
from shardviz._jax.partitioning import *
from shardviz._jax.tracing import *
from shardviz._jax.wrappers import *

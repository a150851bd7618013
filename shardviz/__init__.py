"""shardviz: an interactive explorer of sharding in JAX.

>>> import shardviz as sv
>>> sv.mesh(data=2, model=4).shape_tuple
(('data', 2), ('model', 4))

The public names stand in `__init__.pyi`. Each is loaded when first used, so that `import shardviz` costs next to
nothing, starts no JAX backend and no process.
"""

import importlib

import lazy_loader

from shardviz import visible

__version__ = "0.1.0"

visible.provide(lambda: importlib.import_module("shardviz.paint"))  # plain data show themselves, and import no painter

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

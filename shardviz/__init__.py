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

# Plain data show themselves and are judged, and import neither painters nor judges.
visible.provide(
    paint=lambda: importlib.import_module("shardviz.paint"),
    study=lambda: importlib.import_module("shardviz.study"),
    widgets=lambda: importlib.import_module("shardviz.widgets"),
    diagnose=lambda: importlib.import_module("shardviz.diagnose"),
)

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

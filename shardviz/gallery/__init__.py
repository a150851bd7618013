"""Real programs to explore: the function, abstract arguments and a sensible plan.

>>> from shardviz import gallery
>>> example = gallery.mlp()
>>> example.name, [argument.shape for argument in example.args[1:]]
('train_step', [(4096, 1024), (4096, 256)])

No array is ever made: the arguments are `jax.ShapeDtypeStruct`s.
"""

from shardviz.gallery.example import Example
from shardviz.gallery.llama import llama
from shardviz.gallery.mlp import mlp

__all__ = ["Example", "llama", "mlp"]

"""Real programs to explore: the function, abstract arguments and a sensible plan; and the compiler options of recipes.

>>> from shardviz import gallery
>>> example = gallery.mlp()
>>> example.name, [argument.shape for argument in example.args[1:]]
('train_step', [(4096, 1024), (4096, 256)])

The arguments are `jax.ShapeDtypeStruct`s: no array is ever created.
"""

from shardviz.gallery.decoders import decoder_of
from shardviz.gallery.example import Example
from shardviz.gallery.gpt_2021 import gpt_2021
from shardviz.gallery.llama import llama
from shardviz.gallery.measured import measured, published
from shardviz.gallery.mlp import mlp
from shardviz.gallery.moe import moe
from shardviz.gallery.nnx import decoder
from shardviz.gallery.pipeline import pipeline
from shardviz.gallery.resnet import resnet
from shardviz.gallery.ring_attention import ring
from shardviz.records.options import option_sets

__all__ = [
    "Example",
    "decoder",
    "decoder_of",
    "gpt_2021",
    "llama",
    "measured",
    "mlp",
    "moe",
    "option_sets",
    "pipeline",
    "published",
    "resnet",
    "ring",
]

"""Where the bytes are: which device holds which slice of an array."""

from shardviz.layout.layout import Layout, itemsize, layout

__all__ = ["Layout", "itemsize", "layout"]

"""Where the bytes are: which device holds which slice of an array."""

from shardviz.layout.layout import Layout, layout

__all__ = ["Layout", "layout"]

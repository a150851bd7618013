"""The person's controls: the explorer, its state, and the page that draws it.

`state` holds a plan and what follows from it and knows no view; `explorer` is the same state as a notebook widget.
"""

from shardviz.widgets.explorer import Explorer, explore
from shardviz.widgets.state import ExplorerState

__all__ = ["Explorer", "ExplorerState", "explore"]

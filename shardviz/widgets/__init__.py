"""The person's controls: the explorer, its state, and the page that draws it.

`state` holds a plan and what follows from it and knows no view; `explorer` is the same state as a notebook widget;
`opening.explore` makes one.
"""

from shardviz.session.explorer import ExplorerState
from shardviz.widgets.explorer import Explorer
from shardviz.widgets.opening import explore

__all__ = ["Explorer", "ExplorerState", "explore"]

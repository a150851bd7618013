"""The person's controls: the explorer as a notebook widget, and the page that draws it.

What it shows and changes is an `ExplorerState` of `session`, which knows no view; `opening.explore` makes one.
"""

from shardviz.session.explorer import ExplorerState
from shardviz.widgets.explorer import Explorer
from shardviz.widgets.opening import explore

__all__ = ["Explorer", "ExplorerState", "explore"]

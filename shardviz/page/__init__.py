"""The interactive page: the explorer as a notebook widget, and the forms of exercises.

The widget shows and edits an `ExplorerState` of the room `explorer`, which knows no view; `opening.explore` makes one.
"""

from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from shardviz.page.opening import explore, open

__all__ = ["Explorer", "ExplorerState", "explore", "open"]

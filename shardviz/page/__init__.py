"""The person's controls: the explorer as a notebook widget, the page that draws it, and the form of an exercise.

What it shows and changes is an `ExplorerState` of `session`, which knows no view; `opening.explore` makes one.
"""

from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from shardviz.page.opening import explore, open

__all__ = ["Explorer", "ExplorerState", "explore", "open"]

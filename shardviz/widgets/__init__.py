"""The person's controls: the explorer as a notebook widget, the page that draws it, and the form of an exercise.

What it shows and changes is an `ExplorerState` of `session`, which knows no view; `opening.explore` makes one.
"""

from shardviz.session.explorer import ExplorerState
from shardviz.widgets.exercise import exercise_form
from shardviz.widgets.explorer import Explorer
from shardviz.widgets.opening import explore, open

__all__ = ["Explorer", "ExplorerState", "exercise_form", "explore", "open"]

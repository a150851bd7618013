"""The parts of a lesson: exercises (predict, then compare), puzzles (find a plan as good as par) and functions to write
by hand, graded by the compiler.

>>> import shardviz as sv
>>> question = sv.lessons.exercise(sv.gallery.mlp(), ask="collectives", title="mlp")
>>> sv.lessons.scores(question).score
0.0
"""

import lazy_loader

# Lazily, because a written function's own process imports this room, and needs only `running`.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

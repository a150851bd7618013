"""The parts of a lesson: exercises (predict, then compare) and puzzles (find a plan as good as par), graded by the
compiler.

>>> import shardviz as sv
>>> question = sv.lessons.exercise(sv.gallery.mlp(), ask="collectives", title="mlp")
>>> sv.lessons.scores(question).score
0.0
"""

from shardviz.study.exercise import exercise, scores
from shardviz.study.puzzle import puzzle

__all__ = ["exercise", "puzzle", "scores"]

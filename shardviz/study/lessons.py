"""What lessons are made of: exercises (predict, then see) and puzzles (find a plan that is as good as par); the
compiler keeps the score.

>>> import shardviz as sv
>>> question = sv.lessons.exercise(sv.gallery.mlp(), ask="collectives", title="mlp")
>>> sv.lessons.scores(question).score
0.0
"""

from shardviz.study.exercise import exercise, scores
from shardviz.study.puzzle import puzzle

__all__ = ["exercise", "puzzle", "scores"]

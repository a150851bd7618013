"""What exercises, puzzles and written functions have in common: tries, hints, the answer, and scores.

A wrong try gets a hint. The answer is shown after the third wrong try, or on request; afterwards nothing is scored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shardviz.display import Displayed
from shardviz.errors import ShardvizError

FREE = 3
"""Number of wrong tries after which the answer is shown."""


@dataclass(eq=False, repr=False)
class Asked(Displayed):
    """A question.

    Attributes:
        tries: number of answers.
        wrong: number of wrong answers.
        helped: whether the right answer was shown; later answers have the score 0.
    """

    tries: int = field(default=0, init=False)
    wrong: int = field(default=0, init=False)
    helped: bool = field(default=False, init=False)

    def count(self, right: bool) -> bool:
        """Count an answer; return whether the right answer is shown now, after the last free wrong one."""
        self.tries, self.wrong = self.tries + 1, self.wrong + (not right)
        shown = not right and self.wrong >= FREE
        self.helped |= shown
        return shown

    def give(self, solved: bool, give_up: bool) -> None:
        """Note that the answer is shown. Raises ShardvizError if it is too early, and `give_up` is False."""
        if not (solved or self.helped or give_up):
            raise ShardvizError(
                f"reveal: {self.wrong} of {FREE} wrong tries so far; try again, or ask once more with "
                "reveal(give_up=True): afterwards there are no stars"
            )
        self.helped |= not solved


@dataclass(frozen=True, repr=False)
class Scores(Displayed):
    """The scores of several exercises and puzzles."""

    exercises: tuple[Any, ...]

    @property
    def score(self) -> float:
        """The mean score; an unanswered exercise counts 0."""
        reached = sum(each.result.score for each in self.exercises if each.result)
        return reached / len(self.exercises) if self.exercises else 0.0


def scores(*exercises: Any) -> Scores:
    """Return the scores of several exercises, puzzles and written functions, as a table.

    Examples:
        >>> import shardviz as sv
        >>> exercise = sv.lessons.exercise(sv.gallery.mlp(), ask="collectives", title="mlp")
        >>> sv.lessons.scores(exercise).score
        0.0
    """
    return Scores(exercises)

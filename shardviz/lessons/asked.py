"""The common parts of exercises, puzzles and written functions: tries, hints, the answer, and scores.

A wrong try gets a hint. The answer is shown after the third wrong try, or on request; afterwards nothing is scored.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardviz.display import Displayed, is_watched
from shardviz.errors import ShardvizError
from shardviz.files import read_whole, write_whole

FREE = 3
"""Number of wrong tries after which the answer is shown."""
STARS = 3
PAR, NEAR = 1.005, 1.25
"""The multiples of par's costs up to which an answer has three stars, and two."""
KEPT = ".shardviz-progress.json"
"""The file in the notebook's folder with the best score of each lesson."""


@dataclass(eq=False, repr=False)
class Question(Displayed):
    """A question: its `result` (the graded answer, or the best attempt), the number of answers (`tries`) and of wrong
    ones. If the right answer was shown (`helped`), later answers have the score 0."""

    tries: int = field(default=0, init=False)
    wrong: int = field(default=0, init=False)
    helped: bool = field(default=False, init=False)
    result: Any = field(default=None, init=False)

    def count(self, right: bool) -> bool:
        """Count an answer; return whether the right answer is shown now, after the last free wrong one."""
        self.tries, self.wrong = self.tries + 1, self.wrong + (not right)
        shown = not right and self.wrong >= FREE
        self.helped |= shown
        return shown

    def keep(self, attempt: Starred) -> None:
        """Make an attempt the result, if it is the best so far."""
        self.result = max(filter(None, (self.result, attempt)), key=lambda each: (each.stars, -each.worst))

    def then(self, result: Any) -> Any:
        """Return a result that contains the answer. Before a person's first try, return a note that it is locked."""
        return result if self.tries or not is_watched() else Locked(getattr(self, "title", ""))

    def give(self, solved: bool, give_up: bool) -> None:
        """Record that the answer is shown. Raises ShardvizError if tries are left, and `give_up` is False."""
        if not (solved or self.helped or give_up):
            raise ShardvizError(
                f"reveal: {self.wrong} of {FREE} wrong tries so far; try again, or ask once more with "
                "reveal(give_up=True): afterwards there are no stars"
            )
        self.helped |= not solved


@dataclass(frozen=True, kw_only=True, repr=False)
class Starred(Displayed):
    """A scored answer of a puzzle, the number `tries`; without stars if the solution was shown before (`helped`)."""

    tries: int = 0
    helped: bool = False

    @property
    def worst(self) -> float:
        """The largest cost as a multiple of par's; infinite if the answer is wrong."""
        raise NotImplementedError

    @property
    def least(self) -> int:
        """The stars of an answer that is far above par."""
        return int(self.worst < float("inf"))

    @property
    def stars(self) -> int:
        """3: as good as par; 2: at most a quarter above; else `least`; 0 if the solution was shown before."""
        return 0 if self.helped else STARS if self.worst <= PAR else 2 if self.worst <= NEAR else self.least

    @property
    def score(self) -> float:
        """The share of stars, 0 to 1."""
        return self.stars / STARS


@dataclass(frozen=True, repr=False)
class Locked(Displayed):
    """The place of a result that is locked until the question `title` is answered, or, without one, until a number is
    guessed."""

    title: str


@dataclass(frozen=True, repr=False)
class Guess(Displayed):
    """A guessed amount and the right one; `guess` is None if there is no guess yet."""

    guess: float | None
    right: float
    unit: str = ""

    @property
    def times(self) -> float | None:
        """The factor between both, at least 1; None without a guess."""
        return None if self.guess is None else max(self.guess / self.right, self.right / self.guess)


def guess(guess: float | None, right: float, unit: str = "") -> Guess | Locked:
    """Return a guessed amount beside the right one, with the factor between them.

    Args:
        guess: the learner's amount. As long as it is None, a person gets a note that the right one is locked.
        right: the right amount.
        unit: the unit of both.

    Raises:
        ShardvizError: if an amount is not positive.

    Examples:
        >>> import shardviz as sv
        >>> sv.lessons.guess(10.0, 25.0, "MB")
        25 MB; your guess, 10 MB, is off by a factor of 2.50
    """
    for name, amount in (("guess", guess), ("right", right)):
        if amount is not None and not amount > 0:
            raise ShardvizError(f"guess({name}={amount!r}): expected a positive number")
    return Locked("") if guess is None and is_watched() else Guess(guess, right, unit)


@dataclass(frozen=True, repr=False)
class Scores(Displayed):
    """The scores of several exercises and puzzles."""

    exercises: tuple[Any, ...]

    @property
    def score(self) -> float:
        """The mean score; an unanswered exercise counts 0."""
        reached = sum(each.result.score for each in self.exercises if each.result)
        return reached / len(self.exercises) if self.exercises else 0.0


def scores(*exercises: Any, lesson: str = "") -> Scores:
    """Return the scores of several exercises, puzzles and written functions, as a table.

    Args:
        exercises: the questions.
        lesson: the lesson's title; its best score is then kept in the notebook's folder, for `progress`, if a person
            runs the notebook.

    Examples:
        >>> import shardviz as sv
        >>> exercise = sv.lessons.exercise(sv.gallery.mlp(), ask="collectives", title="mlp")
        >>> sv.lessons.scores(exercise).score
        0.0
    """
    result = Scores(exercises)
    if lesson and is_watched() and any(each.tries for each in exercises):
        kept = progress().lessons
        with contextlib.suppress(ShardvizError):  # a folder that cannot be written to
            write_whole(KEPT, json.dumps({**kept, lesson: max(result.score, kept.get(lesson, 0.0))}, indent=1))
    return result


@dataclass(frozen=True, repr=False)
class LessonScores(Displayed):
    """The best score of each lesson that was done: its title → 0 to 1."""

    lessons: Mapping[str, float]


def progress() -> LessonScores:
    """Return the scores that `scores(..., lesson=...)` kept in the notebook's folder.

    Examples:
        >>> import shardviz as sv
        >>> sv.lessons.progress()
        No lesson was done in this folder yet.
    """
    try:
        kept = json.loads(read_whole(KEPT))
        return LessonScores({str(lesson): float(score) for lesson, score in kept.items()})
    except (ShardvizError, ValueError, TypeError, AttributeError):  # none yet, or not ours
        return LessonScores({})

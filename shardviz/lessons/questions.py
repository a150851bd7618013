"""The common part of all questions: an answer is graded, counted, scored, shown, and kept as progress.

A wrong try gets hints. The right answer is shown with the third wrong try, or on request; answers after it have the
score 0. Exercises, puzzles and written functions differ in what they ask, and in how an answer is graded.
"""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, ClassVar

from shardviz.caching import cached_property
from shardviz.display import Displayed, is_watched, paint
from shardviz.errors import ShardvizError
from shardviz.files import read_whole, write_whole
from shardviz.records.amounts import format_bytes, format_number, format_seconds, plural
from shardviz.records.why import CollectiveWhy, Why
from shardviz.view import document as doc

FREE = 3
"""Number of wrong tries after which the right answer is shown."""
STARS = 3
PAR, NEAR = 1.005, 1.25
"""The multiples of par's costs up to which an answer has three stars, and two."""
PROGRESS = ".shardviz-progress.json"
"""The file in the notebook's folder with the best score of each lesson."""


def table_of(name: str) -> dict[str, Any]:
    """Return a TOML file of this room, by its name."""
    return tomllib.loads((files("shardviz.lessons") / f"{name}.toml").read_text(encoding="utf-8"))


WORDS: dict[str, dict[str, Any]] = table_of("words")


def amount_text(amount: float, unit: str) -> str:
    """Return an amount of bytes (`B`), seconds (`s`) or of something else as text."""
    return {"B": format_bytes, "s": format_seconds}.get(unit, format_number)(amount)


@dataclass(frozen=True)
class GradedItem:
    """A graded item of an answer: the learner's and the right value (empty if there is none), the points reached and
    possible (0 if it does not count), and a verdict. `why` is the cause, if known. `times` is the learner's amount as a
    multiple of the right one, or of par's."""

    what: str
    given: str
    right: str
    points: float = 0.0
    of: float = 0.0
    verdict: str = ""
    why: Why | CollectiveWhy | None = None
    times: float | None = None


def cost_row(name: str, mine: float, par: float) -> GradedItem:
    """Return a cost beside par's; `words.toml` has the words of its name."""
    what, text, unit = WORDS["costs"][name]
    of = (text.format(amount_text(amount, unit)) for amount in (mine, par))
    return GradedItem(what, *of, times=mine / max(par, 1e-9))


@dataclass(frozen=True, kw_only=True, repr=False)
class GradedAnswer(Displayed):
    """A graded answer.

    Attributes:
        question: the question.
        rows: the graded items.
        problem: a sentence about why the answer cannot have stars; else empty.
        least: the stars of an answer whose cost is far above par.
        ideas: hints, such as those for misconceptions that the answer follows.
        tries: the number of the try; 0 if it did not count.
        left: the number of wrong tries that are left before the right answer is shown.
        shown: whether the right answer is shown with this answer.
        helped: whether the right answer was shown before, so that the score is 0.
    """

    question: Any
    rows: tuple[GradedItem, ...] = ()
    problem: str = ""
    least: int = 1
    ideas: tuple[str, ...] = ()
    tries: int = 0
    left: int = FREE
    shown: bool = False
    helped: bool = False

    @property
    def worst(self) -> float:
        """The largest multiple of par's costs; infinite with a problem."""
        return float("inf") if self.problem else max((row.times or 0.0 for row in self.rows), default=0.0)

    @property
    def share(self) -> float:
        """The share of points (at least 0, since wrong items subtract points) or of stars, without regard to help."""
        if self.question.starred:
            far = 0 if self.problem else self.least
            return (STARS if self.worst <= PAR else 2 if self.worst <= NEAR else far) / STARS
        points, of = sum(row.points for row in self.rows), sum(row.of for row in self.rows)
        return max(0.0, points) / of if of else float(points >= 0)

    @property
    def score(self) -> float:
        """The share of points or stars, 0 to 1; 0 if the right answer was shown before."""
        return 0.0 if self.helped else self.share

    @property
    def stars(self) -> int:
        """3: as good as par; 2: at most a quarter above; 1: more; 0: wrong, or the right answer was shown before."""
        return round(self.score * STARS)

    @property
    def under_par(self) -> bool:
        """Whether one of its costs is below par's, and none is above."""
        return self.worst <= PAR and min(row.times or 1.0 for row in self.rows) < 2 - PAR

    @property
    def sentence(self) -> str:
        """The problem, or the cost that exceeds par most; empty for an answer with points."""
        if self.problem or not self.question.starred:
            return self.problem
        most, right = max(self.rows, key=lambda row: row.times or 0.0), self.question.right
        if self.worst > PAR:
            return f"{right}, but {most.what} {most.given}: {most.times:.2f} x par ({most.right})."
        return f"{right}, and {'it is under par' if self.under_par else 'par is reached'}."


@dataclass(eq=False, repr=False)
class Question(Displayed):
    """A question. Its `above()` yields the Document's blocks, its `below(answer)` those below an answer's rows.

    Attributes:
        title: its title.
        tries, wrong: the number of answers, and of wrong ones.
        helped: whether the right answer was shown; later answers have the score 0.
        result: the graded answer that counts (an exercise's last, otherwise the best); None before the first.
        mesh: the mesh.
        heading: words after the title, in code.
        example: how it is answered in Python.
        items: the names that are asked for; empty if the answer has to find them.
        starred: whether answers have stars for their costs; otherwise points.
        right: the beginning of a sentence about a right answer with stars.
    """

    title: str = field(default="", kw_only=True)
    tries: int = field(default=0, init=False)
    wrong: int = field(default=0, init=False)
    helped: bool = field(default=False, init=False)
    result: Any = field(default=None, init=False)
    mesh: Any = field(default=None, init=False)
    heading: tuple[str, ...] = field(default=(), init=False)
    example: str = field(default="", init=False)
    items: Sequence[str] = field(default=(), init=False)
    starred: ClassVar[bool] = True
    right: Any = field(default="", init=False)

    @cached_property
    def form(self) -> Any:
        """The form; see `widget`."""
        return paint("form", self)

    def widget(self) -> Any:
        """Return the form: fields for the answer or the explorer, a button that grades the answer, and the result; the
        question itself if nobody can press a button. Each call returns the same form."""
        return self.form

    def counted(self, answer: Any) -> Any:
        """Count an answer, and return it with its number. Make it the result, unless a better one has stars."""
        wrong = answer.share < 1
        self.tries, self.wrong = self.tries + 1, self.wrong + wrong
        left = FREE - self.wrong
        answer = replace(answer, tries=self.tries, left=left, shown=not wrong or left <= 0, helped=self.helped)
        self.helped |= wrong and left <= 0
        best = self.result if self.starred and self.result else answer
        self.result = max(best, answer, key=lambda each: (each.stars, -each.worst))
        return answer

    def reveal(self, *, give_up: bool = False) -> Any:
        """Return the right answer: an exercise's as a graded answer, par's plan with its costs, or a function's code.

        Args:
            give_up: show it before the third wrong try; later answers have no points or stars.

        Raises:
            ShardvizError: if there are fewer than three wrong tries, none is right, and `give_up` is False.
        """
        solved = self.result is not None and self.result.share == 1
        if not (solved or self.helped or give_up):
            lost = f"no {'stars' if self.starred else 'points'}"
            how = f"try again, or use reveal(give_up=True), after which there are {lost}"
            raise ShardvizError(f"reveal: {self.wrong} of {FREE} wrong tries so far; {how}")
        self.helped |= not solved
        return self.shown()

    def shown(self) -> Any:
        """Return the right answer."""
        raise NotImplementedError

    def then(self, result: Any) -> Any:
        """Return a result that contains the answer. Before a person's first try, return a note that it is locked."""
        return result if self.tries or not is_watched() else _locked(f"answer the question “{self.title}” first")


@dataclass(frozen=True, repr=False)
class Note(Displayed):
    """A Document that shows itself, with the scores that it has (title → 0 to 1), and their mean."""

    document: doc.Document
    scores: Mapping[str, float] = field(default_factory=dict)
    score: float = 0.0


doc.document.register(Note, lambda note: note.document)


def _paragraph(*pieces: doc.Piece | str, quiet: bool = False) -> Note:
    return Note(doc.Document.of(doc.paragraph(*pieces, quiet=quiet)))


def _locked(what: str) -> Note:
    return _paragraph(f"Locked: {what}, then run this cell again.", quiet=True)


def guess(guess: float | None, right: float, unit: str = "") -> Note:
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
    answer = doc.words(f"{format_number(right)} {unit}".rstrip(), strong=True)
    if guess is None:
        return _locked("put your number in the place of None") if is_watched() else _paragraph(answer)
    times, mine = max(guess / right, right / guess), f"{format_number(guess)} {unit}".rstrip()
    factor = doc.words(format_number(times), strong=True, tone="good" if times < 1.1 else "warn")
    return _paragraph(answer, f"; your guess, {mine}, is off by a factor of", factor)


def scores(*questions: Any, lesson: str = "") -> Note:
    """Return the scores of several exercises, puzzles and written functions, as a table, and their mean as `score`.

    Args:
        questions: the questions. One without an answer counts 0.
        lesson: the lesson's title; its best score is then kept in the notebook's folder, for `progress`, if a person
            runs the notebook.

    Examples:
        >>> import shardviz as sv
        >>> exercise = sv.lessons.exercise(sv.gallery.mlp(), ask="collectives", title="mlp")
        >>> sv.lessons.scores(exercise).score
        0.0
    """
    note = _table("question", [(each.title or each.ask, each.result and each.result.score) for each in questions])
    if lesson and is_watched() and any(each.tries for each in questions):
        kept = progress().scores
        with contextlib.suppress(ShardvizError):  # a folder that cannot be written to
            write_whole(PROGRESS, json.dumps({**kept, lesson: max(note.score, kept.get(lesson, 0.0))}, indent=1))
    return note


def progress() -> Note:
    """Return the scores that `scores(..., lesson=...)` kept in the notebook's folder.

    Examples:
        >>> import shardviz as sv
        >>> sv.lessons.progress()
        No lesson was done in this folder yet.
    """
    try:
        kept = {str(lesson): float(score) for lesson, score in json.loads(read_whole(PROGRESS)).items()}
    except (ShardvizError, ValueError, TypeError, AttributeError):  # none yet, or not ours
        kept = {}
    if not kept:
        return _paragraph("No lesson was done in this folder yet.")
    return _table("lesson", sorted(kept.items(), key=lambda each: (int(re.findall(r"^\d*", each[0])[0] or 0), each[0])))


def _table(what: str, scores: Sequence[tuple[str, float | None]]) -> Note:
    """Return a table of scores, None for a question without an answer."""
    mean = sum(score or 0.0 for _, score in scores) / max(len(scores), 1)
    rows = doc.Rows(scores).table(
        (what, lambda each: each[0]),
        (doc.right("score"), lambda each: "not answered" if each[1] is None else f"{each[1]:.0%}"),
        ("", lambda each: "★" * round(STARS * (each[1] or 0.0))) if mean else None,
    )
    document = doc.Document.of(rows, title=doc.words(f"score {mean:.0%}", strong=True))
    return Note(document, {title: score or 0.0 for title, score in scores}, mean)


@doc.document.register(Question)
def question_document(question: Any) -> doc.Document:
    """Return the question, and how it is answered in Python."""
    title = (
        doc.words(question.title or question.ask, strong=True),
        *(doc.code(each) for each in question.heading if each != "<lambda>"),
    )
    return doc.Document.of(
        question.above(),
        doc.paragraph("in Python:  ", *doc.with_code(question.example)),
        title=title,
        lead=(doc.mesh_axes(question.mesh),),
        mesh=question.mesh,
    )


@doc.document.register
def answer_document(answer: GradedAnswer) -> doc.Document:
    """Return the stars or the score, a row per item, the question's own blocks, hints, and what comes next."""
    question, starred = answer.question, answer.question.starred
    right = answer.shown or starred

    def verdict(row: GradedItem) -> doc.Piece:
        lost = row.points < row.of or row.points < 0 or (starred and (row.times or 0.0) > PAR)
        times = f"{format_number(row.times)} x" if right and row.times is not None else ""  # says the right amount
        tone = "bad" if lost else "good" if row.of else ""
        return doc.words(": ".join(filter(None, (row.verdict, times))), tone=tone)

    def points(row: GradedItem) -> str:
        reached = format_number(row.points).replace("-", "−")
        return f"{reached} of {format_number(row.of)}" if row.of else reached if row.points else ""

    named = [row for row in answer.rows if right or row.given or (row.of and question.items)]
    rows = doc.Rows(named, most=48, first=40, noun="answer").table(
        (doc.wrapped(), lambda row: row.what) if starred else ("", lambda row: doc.code(row.what)),
        (
            doc.right("yours") if starred else doc.wrapped("answer"),
            lambda row: row.given or doc.words("nothing" if row.verdict else "", quiet=True),
        ),
        (doc.right("par") if starred else doc.wrapped("right"), lambda row: row.right or "none") if right else None,
        (doc.right() if starred else doc.wrapped(), verdict),
        None if starred else (doc.right("points"), points),
    )
    tone = "good" if answer.score == 1 else "warn" if answer.score > 0 else "bad"
    reached = "★" * answer.stars + "☆" * (STARS - answer.stars) if starred else f"score {answer.score:.0%}"
    tries = f"at try {answer.tries}" if answer.tries else "the right answer" if answer.shown else "not counted"
    free = f"Try again. The right answer is shown after {plural(answer.left, 'more wrong answer')}, or on request."
    helped = f"The right answer was shown before: no {'stars' if starred else 'points'}."
    return doc.Document.of(
        doc.paragraph(*doc.with_code(answer.sentence, strong=True)) if answer.sentence else None,
        rows if rows.rows else None,
        question.below(answer),
        (doc.paragraph(*doc.with_code(hint), label="hint") for hint in answer.ideas if not answer.shown),
        doc.notes(helped if answer.helped else "", free if answer.tries and not answer.shown else ""),
        title=(doc.words(reached, strong=True, tone=tone), doc.words(tries, quiet=True)),
        mesh=question.mesh,
    )

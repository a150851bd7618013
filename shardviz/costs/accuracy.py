"""How far the walked step was off where somebody measured it: the factors around `step.seconds`.

`accuracy.toml` has, for each kind of chip and each schedule, by which factor published step times were shorter and
longer than what was predicted for them (`docs/predicted_and_measured.md`, whose script writes both).

>>> accuracy_of("tpu", "compiled").low < 1 < accuracy_of("tpu", "compiled").high
True
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

STEP_ERROR = 0.04
"""The share of a step below which no level but the target's compiler tells whether a change saves any: the mends tried
in `docs/promised_and_compiled.py` that made the compiled step longer promised less, one of them 3.2 %."""


@dataclass(frozen=True)
class Accuracy:
    """How far the published steps of one kind of chip were from what was predicted at one level.

    Attributes:
        kind: of chip, `tpu` or `gpu`.
        level: of the report.
        low, high: the 10th and 90th percentile of measured seconds by predicted ones; the least and the most where
            there are fewer than ten rows.
        median: of the same.
        error: the median distance from 1.
        rows: whose these are.
    """

    kind: str
    level: str
    low: float
    high: float
    median: float
    error: float
    rows: tuple[str, ...]

    def __str__(self) -> str:
        return f"{len(self.rows)} published steps took {self.low:.2f} to {self.high:.2f} times what was predicted"


def accuracy_of(kind: str, level: str) -> Accuracy | None:
    """The accuracy on a kind of chip (`tpu`, `gpu`) at a level; None where no published step was compared."""
    return _accuracies().get((kind, level))


@functools.cache
def _accuracies() -> Mapping[tuple[str, str], Accuracy]:
    text = (files("shardviz.costs") / "accuracy.toml").read_text("utf-8")
    entries = (Accuracy(**entry | {"rows": tuple(entry["rows"])}) for entry in tomllib.loads(text)["accuracy"])
    return {(each.kind, each.level): each for each in entries}

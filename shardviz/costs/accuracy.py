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


@dataclass(frozen=True)
class Accuracy:
    """How far predicted steps were off.

    Attributes:
        low, high: measured / predicted seconds: between these lie eight of ten published steps (all, of fewer than
            ten).
        rows: how many were compared.
    """

    low: float
    high: float
    rows: int

    def __str__(self) -> str:
        return f"measured steps took {self.low:.2f} to {self.high:.2f} times what was predicted ({self.rows} published)"


def accuracy_of(kind: str, level: str) -> Accuracy | None:
    """The accuracy on a kind of chip (`tpu`, `gpu`) at a level; None where no published step was compared."""
    return _accuracies().get((kind, level))


@functools.cache
def _accuracies() -> Mapping[tuple[str, str], Accuracy]:
    text = (files("shardviz.costs") / "accuracy.toml").read_text("utf-8")
    entries = tomllib.loads(text).get("accuracy", ())
    return {(e["kind"], e["level"]): Accuracy(e["low"], e["high"], len(e["rows"])) for e in entries}

"""The texts of a program at its stages, line by line: JAX's, Shardy's, and XLA's before and after its passes.

>>> line = StageLine("%3 = stablehlo.add %1, %2 : tensor<8xf32>", "model.py:20")
>>> stage = Stage(name="stablehlo", title="StableHLO", kind="mlir", read=lambda: (line,))
>>> [each.text for each in stage.lines if each.at == "model.py:20"]
['%3 = stablehlo.add %1, %2 : tensor<8xf32>']
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from shardviz.caching import cached_property


@dataclass(frozen=True)
class StageLine:
    """A line of a program's text, and the user's source line that it comes from (`Frame.short`), empty if unknown."""

    text: str
    at: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """A program at one stage: its name, equal for every plan (`jaxpr`, `shardy`), its title, and its language. `mlir`
    is StableHLO with Shardy's dialect. `about` describes the stage. `read` computes its lines, which takes time."""

    name: str
    title: str
    kind: Literal["jaxpr", "mlir", "hlo"]
    read: Callable[[], tuple[StageLine, ...]] = field(repr=False)
    about: str = ""

    @cached_property
    def lines(self) -> tuple[StageLine, ...]:
        """The stage's text."""
        return self.read()

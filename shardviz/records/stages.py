"""The texts that a program goes through, line by line: JAX's own, Shardy's, XLA's around its passes.

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
    """A line of a program's text, and the person's line that it comes from, as `Frame.short` has it; empty where not
    known."""

    text: str
    at: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Stage:
    """A program at one moment of its way: its name, the same for every plan (`jaxpr`, `shardy`); its title; its
    language (`mlir` is StableHLO and Shardy's dialect); what is done there; and what reads its lines, which takes a
    moment."""

    name: str
    title: str
    kind: Literal["jaxpr", "mlir", "hlo"]
    read: Callable[[], tuple[StageLine, ...]] = field(repr=False)
    told: str = ""

    @cached_property
    def lines(self) -> tuple[StageLine, ...]:
        """Its text."""
        return self.read()

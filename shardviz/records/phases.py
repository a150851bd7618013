"""In which pass of a train step an operation stands: forward, backward, rematerialised, or the update.

JAX's name stack tells what is inside a derivative: `jvp(...)` is forward, `transpose(...)` backward, and there what
`jax.checkpoint` computes again is rematerialised.

>>> phase("jit(step)/transpose(jvp())/while/body/closed_call/checkpoint/rematted_computation/dot_general")
'rematerialised'
>>> phase("jit(step)/transpose(jvp())/dot_general"), phase("jit(step)/jvp()/dot_general"), phase("jit(step)/sub")
('backward', 'forward', 'update')

What stands outside may be the batch made ready or the optimizer; `shardviz.graph.flow` tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_TRANSPOSE = re.compile(r"(?<![\w.])transpose\(")
_JVP = re.compile(r"(?<![\w.])jvp\(")


@lru_cache(maxsize=4096)
def _inside(name_stack: str) -> str:
    if _TRANSPOSE.search(name_stack):
        return "rematerialised" if "rematted_computation" in name_stack else "backward"
    return "forward" if _JVP.search(name_stack) else "update"


def is_differentiated(name_stacks: Iterable[str]) -> bool:
    """Whether any of a program's name stacks shows that it takes a derivative."""
    return any(_JVP.search(name) or _TRANSPOSE.search(name) for name in name_stacks)


def phase(name_stack: str, differentiated: bool = True) -> str:
    """Where in a train step an operation stands, from JAX's name stack: `rematerialised` (`rematted_computation` inside
    `transpose(...)`), `backward` (else inside it), `forward` (inside `jvp(...)`), or `update`, the optimizer's part
    unless the values show otherwise (`shardviz.graph.flow`); all is `forward` where there is no derivative."""
    return _inside(name_stack) if differentiated else "forward"

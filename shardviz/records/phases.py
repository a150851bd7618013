"""The pass of a train step that an operation belongs to: forward, backward, rematerialised, or the update.

JAX's name stack shows derivatives: `jvp(...)` is forward, `transpose(...)` backward, and operations that
`jax.checkpoint` repeats inside `transpose(...)` are rematerialised.

>>> phase("jit(step)/transpose(jvp())/while/body/closed_call/checkpoint/rematted_computation/dot_general")
'rematerialised'
>>> phase("jit(step)/transpose(jvp())/dot_general"), phase("jit(step)/jvp()/dot_general"), phase("jit(step)/sub")
('backward', 'forward', 'update')

Other operations may prepare the batch or be the optimizer; `shardviz.graph.flow` distinguishes them.
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
    """Return whether any of a program's name stacks shows that it takes a derivative."""
    return any(_JVP.search(name) or _TRANSPOSE.search(name) for name in name_stacks)


def phase(name_stack: str, differentiated: bool = True) -> str:
    """Return an operation's pass from JAX's name stack. `rematerialised` has `rematted_computation` inside
    `transpose(...)`, `backward` is the rest of `transpose(...)`, `forward` is inside `jvp(...)`. Everything else is
    `update`, unless the values show otherwise (`shardviz.graph.flow`). Without a derivative, everything is
    `forward`."""
    return _inside(name_stack) if differentiated else "forward"

"""Why JAX traced or compiled a function again: JAX's own explanation of the second of two calls.

A difference that a trace depends on costs a new trace and a new executable. One of where arguments lie, or of what is
donated, costs a new executable from the old trace. JAX is asked with a function that does nothing in the place of the
person's, under the settings and meshes of both calls: what its caches know of the two is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardviz import _jax
from shardviz.errors import ShardvizError
from shardviz.program.signature import CallSignature, short, stand_in
from shardviz.visible import Visible

_LEFT_OUT = ("TRACING CACHE MISS", "for ", "all previously seen cache keys differ", "cache miss explanation unavail")


@dataclass(frozen=True, repr=False)
class Recompilation(Visible):
    """Why the second of two calls was traced or compiled again; false where it was not.

    Attributes:
        name: the function's name.
        traced: whether the function runs again as Python.
        compiled: whether XLA compiles again.
        reasons: what differs; of a trace, in JAX's words.
    """

    name: str
    traced: bool
    compiled: bool
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.compiled

    @property
    def verdict(self) -> str:
        """In words, what the second call costs."""
        if not self.compiled:
            return "the same: no recompilation"
        return "traced and compiled again" if self.traced else "compiled again, from the same trace"


def why_recompiled(a: Any, b: Any) -> Recompilation:
    """What the second of two calls costs by the caches of `jax.jit`, and of `jax.pmap`, which is built on it; and why.

    Args:
        a, b: two of `program.calls`, in order.

    Returns:
        A `Recompilation`: whether the second call is `traced` or only `compiled` again, and the `reasons`.

    Raises:
        ShardvizError: if one of them is no call.
    """
    for call in (a, b):
        if not isinstance(call, CallSignature):
            raise ShardvizError(f"expected two of program.calls, such as program.call(x) gives, not {short(call)}")
    first = stand_in(a.fn)
    second = first if a.fn is b.fn else stand_in(b.fn)
    explanation, compiled = _jax.made_again(lambda: a.lowered(first), lambda: b.lowered(second))
    lines = (line.strip().partition("https://")[0] for line in explanation.splitlines())
    reasons = tuple(line for line in lines if line and not line.startswith(_LEFT_OUT))
    if a.fn is not b.fn:
        advice = "JAX knows a function by identity: define it, and wrap it, once and not on every call"
        reasons = (f"another function, {b.name}: {advice}",)
    elif explanation:
        pairs = ((n, a.static.get(n, "not given"), b.static.get(n, "not given")) for n in {**a.static, **b.static})
        reasons += tuple(f"static value {n}: {was} → {now}" for n, was, now in pairs if was != now)
    elif compiled:
        reasons = tuple(_placings(a, b)) or ("the devices of the mesh around the call are others",)
    return Recompilation(b.name, bool(explanation), compiled, reasons)


def _placings(a: CallSignature, b: CallSignature) -> Iterator[str]:
    """What differs in where arguments lie, and in what is donated."""
    before = a.arrays
    for name, x in b.arrays.items():
        was, now = (getattr(each, "sharding", None) or "not committed" for each in (before.get(name), x))
        if was != now:
            yield f"{name}: {was} → {now}; give it one sharding with jax.device_put before the call"
    donated = [{n: v for n, v in call.options.items() if n.startswith("donate")} for call in (a, b)]
    if donated[0] != donated[1]:
        yield f"donated: {donated[0] or 'nothing'} → {donated[1] or 'nothing'}"

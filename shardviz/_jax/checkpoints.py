"""`jax.checkpoint` around the layers of a function, or another policy for its own checkpoints, applied during tracing.

A loop over layers reaches differentiation with its body as a jaxpr. There the body is wrapped, as if the user had
written `jax.lax.scan(jax.checkpoint(body, policy=...), ...)`; JAX's own partial evaluation then decides what is saved.
Existing checkpoints in the body, or in the function itself, get the policy instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax._src import core as jax_core

from shardviz._jax.jaxprs import once, rewritten, sub_jaxprs
from shardviz._jax.tracing import thread_value

_CHECKPOINTS = ("remat2", "checkpoint", "remat")


class Checkpointing:
    """An interceptor of operations that applies one of `jax.checkpoint_policies`, by its name."""

    def __init__(self, policy: str):
        self.policy = getattr(jax.checkpoint_policies, policy)

    def bind(self, bind: Callable[..., Any], primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Run an operation. A loop or a checkpoint that is differentiated gets the policy first."""
        from jax._src.interpreters import ad

        if not any(isinstance(x, ad.JVPTracer | ad.LinearizeTracer) for x in args):
            return bind(primitive, *args, **params)
        if primitive.name in _CHECKPOINTS:
            params = params | {"policy": self.policy}
        elif primitive.name == "scan":
            with thread_value("checkpointing", None), thread_value("watch", None):
                params = params | {"jaxpr": self._body(params["jaxpr"])}
        else:
            return bind(primitive, *args, **params)
        with thread_value("checkpointing", None):  # what is inside is inside the checkpoint
            return bind(primitive, *args, **params)

    def _body(self, closed: Any) -> Any:
        changed = rewritten(closed, None, self._with_policy)
        if changed is not closed:
            return changed
        run = jax.checkpoint(jax_core.jaxpr_as_fun(closed), policy=self.policy, prevent_cse=False)
        return jax.make_jaxpr(run)(*closed.in_avals)

    def _with_policy(self, e: Any, here: None, inside: Callable[[Any, Any], Any]) -> Any:
        """Return an equation whose checkpoint, or the checkpoints in its nested jitted function, have the policy."""
        params = e.params
        if e.primitive.name in _CHECKPOINTS:
            return e.replace(params=params | {"policy": self.policy})
        body = inside(params["jaxpr"], here) if e.primitive.name in ("jit", "pjit") else params.get("jaxpr")
        return e if body is params.get("jaxpr") else e.replace(params=params | {"jaxpr": body})


def under_checkpoint(jaxpr: Any, seen: set[int] | None = None) -> Iterator[tuple[Any, bool]]:
    """Yield the source info of each loop whose body has a checkpoint, and of each other checkpoint, with whether it is
    a loop. Jaxprs in `seen` are skipped, because equations share jaxprs."""
    seen = set() if seen is None else seen
    for e in jaxpr.eqns:
        loop = e.primitive.name == "scan" and _has_checkpoint(e.params["jaxpr"].jaxpr)
        if loop or e.primitive.name in _CHECKPOINTS:
            yield e.source_info, loop
            continue
        for inner in sub_jaxprs(e.params):
            if id(inner) not in seen:
                seen.add(id(inner))
                yield from under_checkpoint(inner, seen)


@once
def _has_checkpoint(jaxpr: Any, inside: Callable[[Any], bool]) -> bool:
    return any(
        e.primitive.name in _CHECKPOINTS or (e.primitive.name in ("jit", "pjit") and inside(e.params["jaxpr"].jaxpr))
        for e in jaxpr.eqns
    )

"""How a transformed program comes by its plan: each of its arrays takes its spec from one of the original's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from shardviz.errors import SpecError
from shardviz.notation import Spec
from shardviz.notation.parsed import ParsedSpec
from shardviz.program.adapters import Brings, Call
from shardviz.program.plan import expand, is_spec
from shardviz.program.trace import Traced
from shardviz.records import PlanRecord


@dataclass(frozen=True)
class Carry:
    """Where an array of a transformed program takes its spec from.

    Attributes:
        whence: `in`, `out`, or `free` for the compiler's choice.
        index: the number of the original's flat argument or output.
        dimension: where a new dimension is put in, or None for none.
        axes: the mesh axes that cut the new dimension.
    """

    whence: str
    index: int = 0
    dimension: int | None = None
    axes: tuple[str, ...] = ()

    def spec(self, ins: Sequence[Spec | None], outs: Sequence[Spec | None]) -> Spec | None:
        """The spec, from those of the original; None where the original has none.

        Raises:
            SpecError: if an axis that the new dimension is cut along cuts the array already.
        """
        if self.whence == "free":
            return None
        found = (ins if self.whence == "in" else outs)[self.index]
        if self.dimension is None or (found is None and (self.whence == "out" or not self.axes)):
            return found
        return ParsedSpec.of(found or Spec()).insert(self.dimension, self.axes).spec


FREE = Carry("free")


@dataclass(frozen=True, eq=False)
class Transformed:
    """A transformed call.

    Attributes:
        call: what to trace.
        ins: for each flat argument, whence its spec.
        outs: from the original's trace, a pytree prefix of the result: whence each output's spec.
    """

    call: Call
    ins: tuple[Carry, ...]
    outs: Callable[[Traced], Any]


def carried_ins(origin: PlanRecord, of: Traced, transformed: Transformed, names: Sequence[str]) -> dict[str, Spec]:
    """The specs of a transformed program's arguments that follow from a plan for the original.

    Args:
        origin: the original's plan, bound.
        of: the original's trace.
        transformed: what was done to it.
        names: the transformed program's arguments.

    Raises:
        SpecError: if an axis of `spmd_axis_name` cuts an array already.
    """
    return _carried_all(origin, of, names, transformed.ins)


def carried_outs(origin: PlanRecord, of: Traced, transformed: Transformed, traced: Traced) -> dict[str, Spec]:
    """The same for its outputs, from its own trace."""
    flat = jax.tree.leaves(jax.tree.broadcast(transformed.outs(of), traced.out_tree))
    names = [o.name for o in traced.outputs[: len(flat)]]  # new values of arguments come last
    return _carried_all(origin, of, names, flat)


def _carried_all(origin: PlanRecord, of: Traced, names: Sequence[str], carries: Sequence[Carry]) -> dict[str, Spec]:
    ins = [origin.in_specs[a.name] for a in of.arguments]
    outs = [origin.out_specs[o.name] for o in of.outputs]
    found = {name: carried(carry, name, ins, outs) for name, carry in zip(names, carries, strict=True)}
    return {name: spec for name, spec in found.items() if spec is not None}


def carried(carry: Carry, name: str, ins: Sequence[Spec | None], outs: Sequence[Spec | None]) -> Spec | None:
    try:
        return carry.spec(ins, outs)
    except SpecError as error:
        raise SpecError(f"{name}: {error}", argument=name) from error


def bring(call: Call, traced: Traced, made: Call, ins: tuple[Carry, ...], outs: Callable[[Traced], Any]) -> Transformed:
    """With the plan that the original brings, carried over."""
    own = call.brings
    before: list[Spec | None] = list(own.in_specs) or [None] * len(traced.arguments)
    after: list[Spec | None] = expand("out_specs", own.out_specs, traced.out_tree)
    names = [a.name for a in traced.arguments] + ["the new argument"] * len(ins)
    specs = tuple(carried(c, n, before, after) for c, n in zip(ins, names, strict=False))
    anything = jax.tree.map(lambda c: carried(c, "the result", before, after), outs(traced))
    given = any(s is not None for s in jax.tree.leaves(anything, is_leaf=is_spec))
    brings = Brings(
        own.mesh,
        specs if any(s is not None for s in specs) else (),
        anything if given else None,
        own.whence,
    )
    return Transformed(replace(made, brings=brings), ins, outs)


def numbered(whence: str, tree: Any) -> Any:
    """The tree with a `Carry` for each leaf, in order."""
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, [Carry(whence, i) for i in range(len(leaves))])


def out_avals(traced: Traced) -> Any:
    """The result's avals in its tree, without the new values of arguments."""
    tree = jax.tree.structure(traced.out_tree)
    return jax.tree.unflatten(tree, list(traced.closed.out_avals)[: tree.num_leaves])

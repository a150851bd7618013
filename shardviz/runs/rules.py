"""Logical axis names of flax in a dry run: the mesh axes that each name was resolved to, or why there are none.

Linen resolves names in `flax.linen.spmd`, nnx in `flax.core.spmd`; MaxText and others call these two. Both modules are
patched when a script imports them. Tried on flax 0.12.8 to 0.12.12.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

import jax
from jax.sharding import PartitionSpec

from shardviz.records.runs import NO_AXIS, NO_MESH, NO_RULE, NO_RULES, RULED_OUT, SIZE_ONE, TAKEN, RunRule
from shardviz.records.values import Frame
from shardviz.runs.imports import Patch

_LINEN, _CORE = "flax.linen.spmd", "flax.core.spmd"
_LEFT_OUT = NO_MESH, NO_RULES


@dataclass(eq=False)
class RulesSeen:
    """The names that were resolved. Each has its mesh axes, or the reason why it has none, the line, and the number of
    times. `line` gives the script's current line, outside the files of a folder."""

    line: Callable[[str], Frame | None]
    seen: Counter[tuple[str, tuple[str, ...], str, Frame | None]] = field(default_factory=Counter)

    @property
    def patches(self) -> dict[str, Patch]:
        """Return the patches of flax's modules, which note every name that flax resolves."""

        def linen(module: ModuleType, replace: Callable[[Any, str, Any], None]) -> None:
            for name, watcher in (
                ("_logical_to_mesh_axes", self._linen),
                ("get_logical_axis_rules", self._rules_there),
            ):
                if name in vars(module):
                    replace(module, name, watcher(vars(module)[name]))

        def core(module: ModuleType, replace: Callable[[Any, str, Any], None]) -> None:
            if "apply_rules" in vars(module):
                replace(module, "apply_rules", self._core(module.apply_rules))

        return {_LINEN: linen, _CORE: core}

    def copy(self) -> RulesSeen:
        """Return a copy of the names until now."""
        return RulesSeen(self.line, self.seen.copy())

    def rules(self, meshes: Sequence[Mapping[str, int]]) -> tuple[RunRule, ...]:
        """Return the outcome of each name on these meshes (axis → size); names without an effect come first.

        A constraint counts as skipped only if the run has a mesh, and the line never had another outcome: flax skips
        constraints on purpose while only shapes are computed."""
        effective = {(name, source) for name, _, why, source in self.seen if why not in _LEFT_OUT} if meshes else None
        rules = [
            RunRule(name=name, axes=axes, why=why or _why(axes, meshes), source=source, count=count)
            for (name, axes, why, source), count in self.seen.copy().items()
            if why not in _LEFT_OUT or (effective is not None and (name, source) not in effective)
        ]
        return tuple(sorted(rules, key=lambda rule: (not rule.why or rule.why == RULED_OUT, rule.name)))

    def _linen(self, theirs: Any) -> Any:
        signature = inspect.signature(theirs)

        def resolved(*args: Any, **kwargs: Any) -> Any:
            result = theirs(*args, **kwargs)
            bound = signature.bind(*args, **kwargs).arguments
            names, rules = (bound.get(name) for name in [*signature.parameters][:2])
            ruled = {name for name, _ in (_context_rules() if rules is None else rules)}
            left_out = _has_no_mesh(sys._getframe(1))
            for name, axes in zip(names or (), result or (), strict=False):
                if not isinstance(name, str):
                    continue
                if left_out:
                    self._note(name, (), NO_MESH)
                elif type(axes).__name__ == "_UnassignedAxis":
                    self._note(name, (), TAKEN if name in ruled else NO_RULE)
                else:
                    self._note(name, *_axes(axes))
            return result

        return resolved

    def _rules_there(self, theirs: Any) -> Any:
        def rules_there() -> Any:
            rules, caller = theirs(), sys._getframe(1)
            if not rules and caller.f_code.co_name == "with_logical_constraint":
                for name in jax.tree.leaves(caller.f_locals.get("logical_axis_resources")):
                    if isinstance(name, str):
                        self._note(name, (), NO_RULES)
            return rules

        return rules_there

    def _core(self, theirs: Any) -> Any:
        def resolved(*args: Any, **kwargs: Any) -> Any:
            result = theirs(*args, **kwargs)
            names = args[0] if args else kwargs["sharding"]
            before, after = (getattr(each, "spec", each) for each in (names, result))
            if isinstance(before, tuple | PartitionSpec) and isinstance(after, tuple | PartitionSpec):
                for name, axes in zip(before, after, strict=False):
                    if isinstance(name, str):
                        self._note(name, *_axes(axes))
            return result

        return resolved

    def _note(self, name: str, axes: tuple[str, ...], why: str) -> None:
        flax = os.path.dirname(sys.modules[_CORE.partition(".")[0]].__file__ or "")
        self.seen[name, axes, why, self.line(flax)] += 1


def _axes(axes: Any) -> tuple[tuple[str, ...], str]:
    """Return the mesh axes on a rule's right side, and why there are none; empty if there are some."""
    named = (axes,) if isinstance(axes, str) else tuple(a for a in axes or () if isinstance(a, str))
    return named, "" if named else RULED_OUT


def _why(axes: tuple[str, ...], meshes: Sequence[Mapping[str, int]]) -> str:
    """Return why mesh axes shard nothing on any of these meshes; empty where one shards, or there is no mesh."""
    if not meshes or any(mesh.get(axis, 1) > 1 for mesh in meshes for axis in axes):
        return ""
    return SIZE_ONE if any(axis in mesh for mesh in meshes for axis in axes) else NO_AXIS


def _has_no_mesh(caller: FrameType) -> bool:
    """Return whether the flax constraint that is resolving its names has no mesh, neither its own nor from its
    context."""
    if caller.f_code.co_name != "_with_sharding_constraint_one_fallback":
        return False
    return caller.f_locals.get("mesh") is None and not sys.modules["flax.core.meta"].global_mesh_defined()


def _context_rules() -> Any:
    core = sys.modules.get(_CORE)
    return core.get_logical_axis_rules() or () if core is not None else ()

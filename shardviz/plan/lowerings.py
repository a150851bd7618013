"""The traces and lowerings of one call, made when plans need them, and cached.

A function is traced once for each set of mesh axis names (and sizes, if the trace contains shapes of single devices;
and argument specs, if its mesh has Explicit axes), and lowered once for each trace and kind of target.
"""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass, field

from shardviz import _jax
from shardviz.errors import ShardvizError, TraceError, message_of
from shardviz.notation import DeviceMesh, Spec
from shardviz.plan import bind
from shardviz.plan.plan import Plan
from shardviz.propagate.lower import CPU, ELSEWHERE, Lowered, LowerFor, lower
from shardviz.records import PlanRecord
from shardviz.tracing.call import Call
from shardviz.tracing.explicit import explicit_axes, in_types
from shardviz.tracing.intermediates import Intermediate
from shardviz.tracing.placing import operations, with_places
from shardviz.tracing.trace import Traced, needs_mesh, signature, trace

_Key = tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...] | bool, tuple[Spec, ...]]
_MOST_TRACES = 32
_BARE = ("function", "jit", "equinox", "shard_map", "nnx", "state")
"""The kinds of callables that run without a mesh in their context if none is given."""


_MOST_PLACED = 16


@dataclass(eq=False)
class _Kept:
    """A trace, its mesh, its lowerings, and its operations once a plan constrains one."""

    traced: Traced
    mesh: DeviceMesh | None
    lowered: dict[LowerFor, Lowered | TraceError] = field(default_factory=dict)
    operations: tuple[_jax.Made, ...] = ()

    def lower(self, mesh: DeviceMesh, target: LowerFor, *others: LowerFor) -> Lowered:
        """Return the trace lowered for a target, or if JAX cannot lower it for that, for the first of the other
        platforms that works; each is cached. Raises the target's TraceError."""
        refused: TraceError | None = None
        for each in (target, *others):
            if each not in self.lowered:
                try:
                    self.lowered[each] = lower(self.traced, mesh, each)
                except TraceError as error:
                    self.lowered[each] = error
            if isinstance(result := self.lowered[each], Lowered):
                return result
            refused = refused or result
        assert refused is not None
        raise refused


class Lowerings:
    """The traces and lowerings of a call: the mesh of the last trace, or the first known one; the error if the call
    cannot be traced yet (`waits`), unless it only lacks a plan's mesh; and whether the call has no mesh around it
    (`bare`): no mesh is given, and the call's own is in shardings."""

    def __init__(self, call: Call, mesh: DeviceMesh | None, like: Lowerings | None = None):
        """Trace the call if that needs no plan. `like` has the traces and lowerings of the same function, called with
        other shardings. Raises TraceError if tracing fails and a plan would not help."""
        self.call, self.mesh = call, mesh or call.brings.mesh
        self.bare = mesh is None and self.mesh is not None and call.kind in _BARE and not call.contexts.places
        mesh = self.mesh
        self.waits: ShardvizError | None = None
        self._lock = threading.RLock() if like is None else like._lock
        self._kept: dict[_Key | None, _Kept] = {} if like is None else like._kept
        self._placed: dict[tuple[_Key | None, tuple[Intermediate, ...]], _Kept] = {}
        self._sized = like is not None and like._sized
        self._known: Traced | None = None
        self._bound: tuple[Plan, PlanRecord] | None = None
        try:
            if mesh is None:
                self._trace(None)
            else:
                self.traced(Plan(mesh))
        except ShardvizError as error:
            wants_mesh = isinstance(error, TraceError) and needs_mesh(error)
            if mesh is not None and self.bare and wants_mesh:
                self.bare = False
            elif not (wants_mesh if mesh is None else explicit_axes(mesh)):
                raise  # with Explicit axes another spec may be all that is wanted: a plan is what the error belongs to
            self.waits = error

    @property
    def is_traced(self) -> bool:
        return bool(self._kept)

    @property
    def first(self) -> Traced | None:
        """The first cached trace; None if there is none yet."""
        return next((kept.traced for kept in self._kept.values()), None)

    @property
    def latest(self) -> Traced:
        """The last trace. Raises TraceError if there is none yet."""
        if not self._kept:
            raise TraceError(
                f"{self.call.name} is traced when a plan says over which mesh: call program.bind(plan), or give mesh= "
                f"to sv.explore or sv.analyze. Without a mesh, {self.waits}"
            ) from self.waits
        return next(reversed(self._kept.values())).traced

    @property
    def shapes(self) -> Traced:
        """A trace for names, trees and global shapes: any cached one, else one on a mesh of a single device with every
        axis that the function names. Raises TraceError as `latest`, if that trace fails."""
        if self._kept:
            return self.latest
        names: tuple[str, ...] = ("_",)  # so that there is a mesh at all
        while True:
            try:
                return trace(self.call, DeviceMesh(names, (1,) * len(names)))
            except TraceError as error:
                missing = _jax.missing_axis(message_of(error.__cause__))
                if missing is None or missing in names:
                    return self.latest  # which says why there is none
                names += (missing,)

    def traced(self, plan: Plan) -> Traced:
        """Return the call traced on a plan's mesh; if the mesh has Explicit axes, with the plan's specs in the types.
        Raises TraceError if tracing fails; SpecError if a spec in a type does not fit."""
        return self._on(plan).traced

    def lower(self, plan: Plan, target: LowerFor = CPU, *, anywhere: bool = False) -> Lowered:
        """Return the call lowered for a target on its trace's mesh, which `lower.edited` replaces by the plan's. With
        `anywhere`, another platform is used if JAX cannot lower it for the target, because kernels are written for one
        platform. Raises TraceError as `traced`, or if an operation cannot be lowered."""
        kept = self._on(plan)
        mesh = kept.mesh or plan.mesh  # that of the trace, which its equations remember
        with self._lock, self.call.contexts.around():
            return kept.lower(mesh, target, *(ELSEWHERE if anywhere else ()))

    @property
    def lowered(self) -> Lowered:
        """The last trace, lowered for any platform, without a plan. Raises TraceError as `latest` and `lower`."""
        with self._lock, self.call.contexts.around():
            _ = self.latest
            kept = next(reversed(self._kept.values()))
            own = kept.mesh or kept.traced.mesh or DeviceMesh(("_",), (1,))
            return kept.lower(own, CPU, *ELSEWHERE)

    def bind(self, plan: Plan) -> PlanRecord:
        """Return the plan bound to the call; the last one is cached, without locks. Errors as `bind.bind` and
        `traced`."""
        last = self._bound
        if last is None or last[0] != plan:
            last = self._bound = plan, bind.bind(plan, self.call, self.traced(plan))
        return last[1]

    def known(self, mesh: DeviceMesh) -> Traced:
        """Return a trace for the arguments' names and shapes before their specs are known: any existing one, else one
        on Auto axes."""
        with self._lock:
            self._known = self._known or self.first
            if self._known is None:
                try:
                    self._known = self._trace(dataclasses.replace(mesh, types=())).traced
                except TraceError:
                    self._known = signature(self.call)
            return self._known

    def _on(self, plan: Plan) -> _Kept:
        mesh, types = plan.mesh, ()
        if explicit_axes(mesh) and not self.call.traced_for:  # what is lowered already keeps its types
            types = in_types(bind.argument_specs(plan, self.call, self.known(mesh)), mesh)
        kept, wanted = self._trace(mesh, types), tuple(dict.fromkeys(each.value for each in plan.constraints))
        if not wanted:
            return kept
        with self._lock:  # with marks at the values that the plan constrains: one trace for each set of them
            key = self._key(mesh, types), wanted
            if key not in self._placed:
                on = self.call, mesh, types, self._places(mesh)
                kept.operations = kept.operations or operations(kept.traced, on)
                traced = with_places(kept.traced, on, kept.operations, wanted)
                self._placed[key] = _Kept(traced, mesh)
                for old in list(self._placed)[:-_MOST_PLACED]:
                    del self._placed[old]
            return self._placed[key]

    def _trace(self, mesh: DeviceMesh | None, types: tuple[Spec, ...] = ()) -> _Kept:
        with self._lock:
            key = self._key(mesh, types)
            if key not in self._kept:
                traced = trace(self.call, mesh, types, self._places(mesh))
                self.mesh = mesh or self.mesh
                self._sized = self._sized or traced.sized
                key = self._key(mesh, types)
                self._kept[key] = _Kept(traced, mesh)
                for old in [k for k in self._kept if k is not None][:-_MOST_TRACES]:
                    del self._kept[old]
            return self._kept[key]

    def _places(self, mesh: DeviceMesh | None) -> frozenset[str]:
        """Return the places where code may ask for the plan's mesh."""
        if mesh is not None and explicit_axes(mesh):
            return self.call.contexts.places | {_jax.SET_MESH}
        return frozenset() if self.bare else self.call.contexts.places or _jax.PLACES

    def _key(self, mesh: DeviceMesh | None, types: tuple[Spec, ...]) -> _Key | None:
        """Return the parts of a plan that a trace depends on; the mesh's sizes only if shapes of single devices, or
        types, are in the trace."""
        if mesh is None:
            return None
        sized = self._sized or bool(explicit_axes(mesh))
        return mesh.names, mesh.types, mesh.sizes if sized else mesh.size == 1, types

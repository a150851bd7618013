"""The traces and lowerings of one call, made as plans ask for them and kept.

A function is traced once for each set of mesh axis names (and sizes, where it holds shapes of single devices; and
argument specs, where its mesh has Explicit axes), and lowered once for each of these and each kind of target.
"""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass, field

from shardviz.errors import ShardvizError, TraceError
from shardviz.notation import DeviceMesh, Spec
from shardviz.program import bind
from shardviz.program.call import Call
from shardviz.program.explicit import explicit_axes, in_types
from shardviz.program.lower import CPU, Lowered, LowerFor, lower
from shardviz.program.plan import Plan
from shardviz.program.trace import Signature, Traced, needs_mesh, signature, trace
from shardviz.records import PlanRecord

_Key = tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...] | bool, tuple[Spec, ...]]
_MOST_TRACES = 32


@dataclass(frozen=True, eq=False)
class _Kept:
    """A trace, the mesh that it was made on, and its lowerings."""

    traced: Traced
    mesh: DeviceMesh | None
    lowered: dict[LowerFor, Lowered] = field(default_factory=dict)


class Lowerings:
    """A call, traced and lowered as plans ask for it.

    Attributes:
        call: the call.
        mesh: the mesh of the last trace, or the first one that is known of.
        waits: why the call is not traced yet; None once it is, or where a plan's mesh is all that is wanted.
    """

    def __init__(self, call: Call, mesh: DeviceMesh | None):
        """Traces the call at once where that can be done without a plan.

        Raises:
            TraceError: if it cannot be traced, and no plan would help.
        """
        self.call, self.mesh = call, mesh
        self.waits: ShardvizError | None = None
        self._lock = threading.RLock()
        self._kept: dict[_Key | None, _Kept] = {}
        self._sized = False
        self._known: Traced | Signature | None = None
        self._bound: tuple[Plan, PlanRecord] | None = None
        try:
            if mesh is None:
                self._trace(None)
            else:
                self.traced(Plan(mesh))
        except ShardvizError as error:
            # with Explicit axes another spec may be all that is wanted, so that a plan is what the error belongs to
            if mesh is not None and not explicit_axes(mesh):
                raise
            if mesh is None and not (isinstance(error, TraceError) and needs_mesh(error)):
                raise
            self.waits = error

    @property
    def is_traced(self) -> bool:
        """Whether there is a trace already."""
        return bool(self._kept)

    @property
    def first(self) -> Traced | None:
        """The first trace that is kept; None where there is none yet."""
        return next((kept.traced for kept in self._kept.values()), None)

    @property
    def latest(self) -> Traced:
        """The trace that was made last.

        Raises:
            TraceError: if there is none yet.
        """
        if not self._kept:
            raise TraceError(
                f"{self.call.name} is traced when a plan says over which mesh: call program.bind(plan), or give mesh= "
                f"to sv.explore or sv.analyze. Without a mesh, {self.waits}"
            ) from self.waits
        return next(reversed(self._kept.values())).traced

    def traced(self, plan: Plan) -> Traced:
        """The call traced on a plan's mesh, and where that has Explicit axes, with its specs in the types.

        Raises:
            TraceError: if it cannot be traced there.
            SpecError: if a spec that would be in a type does not fit.
        """
        return self._on(plan).traced

    def lower(self, plan: Plan, target: LowerFor = CPU) -> Lowered:
        """The call lowered for a target, on the mesh of its trace: `lower.edited` puts the plan's in its place.

        Raises:
            TraceError: as `traced`, or if JAX cannot lower an operation of it.
        """
        with self._lock:
            kept = self._on(plan)
            if target not in kept.lowered:
                # on the mesh of the trace, which its equations remember
                kept.lowered[target] = lower(kept.traced, kept.mesh or plan.mesh, target)
            return kept.lowered[target]

    def bind(self, plan: Plan) -> PlanRecord:
        """The plan bound to the call; the last one is kept. Errors as `bind.bind` and `traced`."""
        with self._lock:
            if self._bound is None or self._bound[0] != plan:
                self._bound = plan, bind.bind(plan, self.call, self.traced(plan))
            return self._bound[1]

    def known(self, mesh: DeviceMesh) -> Traced | Signature:
        """What is known of the arguments before their specs are: from any trace, on Auto axes if on no others."""
        with self._lock:
            if self._known is None:
                self._known = self.first
            if self._known is None:
                try:
                    self._known = self._trace(dataclasses.replace(mesh, types=())).traced
                except TraceError:
                    self._known = signature(self.call)
            return self._known

    def _on(self, plan: Plan) -> _Kept:
        mesh = plan.mesh
        if not explicit_axes(mesh):
            return self._trace(mesh)
        types = in_types(bind.argument_specs(plan, self.call, self.known(mesh)), mesh)
        return self._trace(mesh, () if self.call.traced_for else types)  # what is lowered already keeps its types

    def _trace(self, mesh: DeviceMesh | None, types: tuple[Spec, ...] = ()) -> _Kept:
        with self._lock:
            key = self._key(mesh, types)
            if key not in self._kept:
                traced = trace(self.call, mesh, types)
                self.mesh = mesh or self.mesh
                self._sized = self._sized or traced.sized
                key = self._key(mesh, types)
                self._kept[key] = _Kept(traced, mesh)
                for old in [k for k in self._kept if k is not None][:-_MOST_TRACES]:
                    del self._kept[old]
            return self._kept[key]

    def _key(self, mesh: DeviceMesh | None, types: tuple[Spec, ...]) -> _Key | None:
        """What of a plan a trace depends on: its mesh's sizes only where shapes of single devices are in the program,
        or shardings in its types.
        """
        if mesh is None:
            return None
        sized = self._sized or bool(explicit_axes(mesh))
        return mesh.names, mesh.types, mesh.sizes if sized else mesh.size == 1, types

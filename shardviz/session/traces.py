"""The traces and lowerings of one callable, and plans bound to them.

A function is traced once for each set of mesh axis names (and sizes, where it holds shapes of single devices; and
argument specs, where its mesh has Explicit axes), and lowered once for each of these and each kind of target.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

from shardviz.errors import MeshError, ShardvizError, SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec, check_spec
from shardviz.program import bind as ruling
from shardviz.program.call import Call
from shardviz.program.explicit import explicit_axes, in_types
from shardviz.program.lower import CPU, Lowered, LowerFor, lower
from shardviz.program.plan import Plan, expand, is_spec
from shardviz.program.trace import Argument, Signature, Traced, check_constraints, needs_mesh, signature, trace
from shardviz.records import PlanRecord

_Key = tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...] | bool, tuple[Spec, ...]]
_MOST_TRACES = 32


class Traces:
    """A function with abstract arguments, traced and lowered as plans ask for it.

    Attributes:
        name: the function's name.
    """

    def __init__(self, call: Call, mesh: Any = None):
        self.name = call.name
        self._call = call
        self._lock = threading.RLock()
        self._traces: dict[_Key | None, Traced] = {}
        self._traced_on: dict[_Key | None, DeviceMesh] = {}
        self._sized = False
        self._signature: Traced | Signature | None = None
        self._lowered: dict[tuple[_Key, LowerFor], Lowered] = {}
        self._bound: tuple[Plan, PlanRecord] | None = None
        self._waits: ShardvizError | None = None
        self._mesh = mesh = call.brings.mesh if mesh is None else DeviceMesh.of(mesh)
        try:
            if mesh is None:
                self._trace(None)
            else:
                self._traced(Plan(mesh))
        except ShardvizError as error:
            # with Explicit axes another spec may be all that is wanted, so that a plan is what the error belongs to
            if mesh is not None and not explicit_axes(mesh):
                raise
            if mesh is None and not (isinstance(error, TraceError) and needs_mesh(error)):
                raise
            self._waits = error

    def __repr__(self) -> str:
        if not self._traces:
            return f"Program {self.name}: not traced yet, it needs a plan's mesh"
        lines = [f"Program {self.name}: {len(self.arguments)} arguments"]
        width = max((len(a.name) for a in self.arguments), default=0)
        for a in self.arguments:
            shape = ", ".join(map(str, a.shape))
            lines.append(f"  {a.name:<{width}}  {a.dtype}[{shape}]" + ("  donated" if a.donated else ""))
        return "\n".join(lines)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Every array among the arguments: tree path, shape, dtype, whether it is donated.

        Raises:
            TraceError: if the function needs a mesh to be traced and has met no plan yet.
        """
        if not self._traces:
            raise TraceError(
                f"{self.name} is traced when a plan says over which mesh: call program.bind(plan), or give mesh= to "
                f"sv.explore or sv.analyze. Without a mesh, {self._waits}"
            ) from self._waits
        return next(reversed(self._traces.values())).arguments

    def outputs(self, plan: Plan) -> tuple[Argument, ...]:
        """Every array of the result: tree path, shape, dtype."""
        return self._traced(plan).outputs

    def plan(self, mesh: Any = None, in_specs: Any = None, out_specs: Any = None) -> Plan:
        """A plan, with what the function brings along where nothing is given.

        Args:
            mesh: a mesh in any form that `sv.mesh` takes. None for the function's own: that of its `in_shardings`, of
                its arguments' shardings, of the call site (`jax.set_mesh`, `with mesh:`), or of the first
                `shard_map` or sharding constraint inside it.
            in_specs, out_specs: as for `Plan`; None for the function's own, see `Plan`.

        Raises:
            MeshError: if no mesh is given and the function brings none.
        """
        if mesh is None:
            mesh = self._call.brings.mesh
        if mesh is None and self._traces:
            mesh = next(iter(self._traces.values())).mesh
        if mesh is None:
            raise MeshError(
                f"{self.name}: no mesh is given, and neither its shardings nor its arguments have one; give one, such "
                "as mesh={'data': 8}"
            )
        return Plan(mesh, in_specs, out_specs)

    def bind(self, plan: Plan) -> PlanRecord:
        """The plan, found to fit: a full-rank spec for every argument and every output (None: the compiler's choice).

        Raises:
            SpecError: if a spec breaks one of pjit's rules; the message names the argument, the numbers and a way out.
            TraceError: if the function cannot be traced on the plan's mesh.
        """
        with self._lock:
            if self._bound is not None and self._bound[0] == plan:
                return self._bound[1]
            bound = self._bind(plan)
            self._bound = plan, bound
            return bound

    def _bind(self, plan: Plan) -> PlanRecord:
        traced, mesh = self._traced(plan), plan.mesh
        ins = self._ins(plan, traced)
        out_specs = self._call.brings.out_specs if plan.out_specs is None else plan.out_specs
        specs = expand("out_specs", out_specs, traced.out_tree) + [None] * len(traced.updates)
        outs = {o.name: s for o, s in zip(traced.outputs, specs, strict=True)}
        if out_specs is None and traced.out_specs:
            outs = {o.name: s for o, s in zip(traced.outputs, traced.out_specs, strict=True)}
        if len(explicit_axes(mesh)) == len(mesh.names):
            types = zip(traced.outputs, traced.out_types, strict=False)
            outs |= {o.name: kind for o, kind in types if outs[o.name] is None}
        outs |= {u.output: ins[u.argument] for u in traced.updates if u.follows and u.argument}
        _override(outs, plan.out_edits, "output")
        for output in traced.outputs:
            spec = outs[output.name]
            outs[output.name] = None if spec is None else _checked(output, spec, mesh)
        check_constraints(traced, mesh)
        return PlanRecord(mesh, ins, outs)

    def _ins(self, plan: Plan, known: Traced | Signature) -> dict[str, Spec]:
        """A full-rank spec for every argument."""
        given = ruling.resolved(plan, self._in_specs(plan, known), self._call, known)
        ins = dict(zip((a.name for a in known.arguments), given, strict=True))
        _override(ins, plan.edits, "argument")
        return {a.name: self._fitting(plan, known, a, ins[a.name] or Spec()) for a in known.arguments}

    def _fitting(self, plan: Plan, known: Traced | Signature, argument: Argument, spec: Spec) -> Spec:
        try:
            return _checked(argument, spec, plan.mesh)
        except SpecError as error:
            whose = ruling.whose(plan, argument.name, self._call, known)
            if not whose and plan.in_specs is None and argument.name not in dict(plan.edits):
                whose = self._call.brings.whence if self._call.brings.in_specs else ""
            raise ruling.blamed(error, whose) if whose else error from None

    def _in_specs(self, plan: Plan, known: Traced | Signature) -> list[Any]:
        """A spec, rules or None for each array among the arguments: the plan's, or those that the function brings."""
        own = list(self._call.brings.in_specs or known.in_specs) or [None] * len(known.arguments)
        if plan.in_specs is None:
            return own
        positional, _ = known.in_tree
        prefix = plan.in_specs
        if len(positional) == 1 and not isinstance(prefix, tuple) and not is_spec(prefix):
            prefix = (prefix,)
        given = expand("in_specs", prefix, positional)
        return given + own[len(given) :]

    def _any_trace(self) -> Traced:
        self.arguments  # noqa: B018  # raises where there is none
        return next(reversed(self._traces.values()))

    def _traced(self, plan: Plan) -> Traced:
        """The program traced on a plan's mesh, and where that has Explicit axes, with its specs in the types."""
        if not explicit_axes(plan.mesh):
            return self._trace(plan.mesh)
        return self._trace(plan.mesh, in_types(self._ins(plan, self._known(plan.mesh)), plan.mesh))

    def _known(self, mesh: DeviceMesh) -> Traced | Signature:
        """What is known of the arguments before their specs are: from any trace, on Auto axes if on no others."""
        with self._lock:
            if self._signature is None and self._traces:
                self._signature = next(iter(self._traces.values()))
            if self._signature is None:
                try:
                    self._signature = self._trace(dataclasses.replace(mesh, types=()))
                except TraceError:
                    self._signature = signature(self._call)
            return self._signature

    def _trace(self, mesh: DeviceMesh | None, types: tuple[Spec, ...] = ()) -> Traced:
        with self._lock:
            key = self._key(mesh, types)
            if key not in self._traces:
                traced = trace(self._call, mesh, types)
                self._mesh = mesh or self._mesh
                self._sized = self._sized or traced.sized
                key = self._key(mesh, types)
                self._traces[key] = traced
                if mesh is not None:
                    self._traced_on[key] = mesh
                for old in [k for k in self._traces if k is not None][:-_MOST_TRACES]:
                    del self._traces[old]
                    self._traced_on.pop(old, None)
                    self._lowered = {key: one for key, one in self._lowered.items() if key[0] != old}
            return self._traces[key]

    def _lower(self, plan: Plan, target: LowerFor = CPU) -> Lowered:
        with self._lock:
            traced = self._traced(plan)
            key = self._key(plan.mesh, traced.types)
            assert key is not None  # a plan has a mesh
            if (key, target) not in self._lowered:
                # on the mesh of the trace, whose equations remember it; `edited` puts the plan's in its place
                self._lowered[key, target] = lower(traced, self._traced_on.get(key, plan.mesh), target)
            return self._lowered[key, target]

    def _key(self, mesh: DeviceMesh | None, types: tuple[Spec, ...] = ()) -> _Key | None:
        """What of a plan a trace depends on: its mesh's sizes only where shapes of single devices are in the program,
        or shardings in its types.
        """
        if mesh is None:
            return None
        sized = self._sized or bool(explicit_axes(mesh))
        return mesh.names, mesh.types, mesh.sizes if sized else mesh.size == 1, types


def _checked(argument: Argument, spec: Spec, mesh: DeviceMesh) -> Spec:
    check_spec(argument.name, argument.shape, spec, mesh)
    return Spec.of(spec, len(argument.shape))


def _override(specs: dict[str, Spec | None], edits: tuple[tuple[str, Spec | None], ...], what: str) -> None:
    for name, spec in edits:
        if name not in specs:
            near = [n for n in specs if n.split("[")[-1] == name.split("[")[-1]][:5] or list(specs)[:5]
            raise SpecError(f"the program has no {what} {name}; it has {', '.join(near)}", argument=name)
        specs[name] = spec

"""Operations that say in Python how they are partitioned, asked under a plan as XLA's partitioner would ask them.

XLA's partitioner calls a `custom_partitioning` function's `partition` with the shardings that Shardy found, and puts
the program for one device that it returns in the operation's place. Here Shardy runs on the program first, over the
operation's own rule; then `partition` is called in the kernel, and what it returns stands in the program as a
`shard_map`, for Shardy and for every compiler. Where that cannot be, the operation is what it computes, and the report
says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax.extend.mlir import ir

from shardviz import _jax
from shardviz.errors import ShardvizError
from shardviz.notation import Spec
from shardviz.notation.spec import axis_size
from shardviz.program.explicit import explicit_axes
from shardviz.program.graph import cut_of
from shardviz.program.lower import Lowered, LowerFor, lower
from shardviz.program.meshes import abstract_mesh
from shardviz.program.module import call_target
from shardviz.program.propagate import prepared, rehearse, run
from shardviz.records import PlanRecord

_Cut = tuple[tuple[Spec, ...], tuple[Spec, ...]]


class Asking:
    """One lowering's operations that say themselves how they are partitioned, asked as plans come.

    The program with their answers is lowered once for each set of shardings that Shardy finds for them.
    """

    def __init__(self, plain: Lowered, target: LowerFor):
        """`plain` is the program with these operations as what they compute."""
        self.plain, self.target = plain, target
        self.asked: Lowered | None = None
        self.answers: dict[Any, Lowered] = {}

    def under(self, bound: PlanRecord) -> Lowered:
        """The program with what the partition functions answer under a plan, on the mesh of its trace."""
        if bound.mesh.size == 1 or not self.plain.partitionings:
            return self.plain  # JAX does the same
        if explicit_axes(bound.mesh):
            return self._without("the mesh has Explicit axes", bound)
        if self.asked is None:
            partitionings = _jax.Partitionings(asking=True)
            self.asked = lower(self.plain.traced, bound.mesh, self.target, partitionings)
        try:
            if not self.asked.rehearsed:
                rehearse(self.asked, bound)
                self.asked.rehearsed = True
            cuts = _cuts(self.asked, bound)
        except ShardvizError as error:
            return self._without(f"Shardy refuses its sharding rule ({error})", bound)
        key = bound.mesh, tuple(sorted(cuts.items()))
        if key not in self.answers:
            self.answers[key] = self._answered(cuts, bound)
            for old in list(self.answers)[:-_MOST]:
                del self.answers[old]
        return self.answers[key]

    def _answered(self, cuts: Mapping[int, tuple[_Cut, ...]], bound: PlanRecord) -> Lowered:
        answers, reasons = {}, {}
        for number, params in enumerate(self.plain.partitionings):
            try:
                answers[number] = _answer(params, cuts.get(number, ()), bound)
            except _jax.Unanswered as error:
                reasons[str(error)] = None
        partitionings = _jax.Partitionings(answers=answers)
        return lower(self.plain.traced, bound.mesh, self.target, partitionings, unanswered=tuple(reasons))

    def _without(self, why: str, bound: PlanRecord) -> Lowered:
        if why not in self.answers:
            self.answers[why] = lower(self.plain.traced, bound.mesh, self.target, unanswered=(why,))
        return self.answers[why]


_MOST = 16


def _answer(params: Mapping[str, Any], cuts: tuple[_Cut, ...], bound: PlanRecord) -> _jax.Partitioned:
    if not cuts:
        raise _jax.Unanswered("it stands inside a shard_map over some of the mesh's axes")
    if len(cuts) > 1:
        raise _jax.Unanswered(f"it stands in a function that is called with {len(cuts)} kinds of shardings")
    ins, outs = next(iter(cuts))
    for spec in (*ins, *outs):
        if spec.unreduced or not all(isinstance(a, str) for a in spec.axes):
            raise _jax.Unanswered(f"Shardy's {spec} is no PartitionSpec that it could be given")
    specs = ([_jax.partition_spec(spec.entries(), (), ()) for spec in of] for of in (ins, outs))
    return _jax.answer(params, abstract_mesh(bound.mesh), *specs)


def _cuts(asked: Lowered, bound: PlanRecord) -> dict[int, tuple[_Cut, ...]]:
    """The number of each operation → how Shardy cuts its operands and results, as often as that differs."""
    by_number: dict[int, dict[_Cut, None]] = {}
    with asked.entered():
        module = prepared(asked, bound)
        run(module, None)

        def cut(value: Any) -> Spec:
            spec = Spec.of(cut_of(value), len(ir.RankedTensorType(value.type).shape))
            keep = lambda axes: tuple(a for a in axes if axis_size(a, bound.mesh) > 1)  # noqa: E731
            return spec.with_dims(tuple(map(keep, spec.dims)))

        for op in _jax.walk(module):
            if op.name != "stablehlo.custom_call" or call_target(op) != _jax.PARTITIONED_CALL:
                continue
            around = op.parent
            while around is not None and around.name != "sdy.manual_computation":
                around = around.operation.parent
            if around is None:
                number = int(ir.StringAttr(op.attributes["backend_config"]).value)
                cuts = tuple(map(cut, op.operands)), tuple(map(cut, op.results))
                by_number.setdefault(number, {})[cuts] = None
    return {number: tuple(cuts) for number, cuts in by_number.items()}

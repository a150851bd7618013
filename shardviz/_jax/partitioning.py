"""Operations that say in Python how they are partitioned (`custom_partitioning`), without devices.

JAX lowers one to a custom call with Shardy's rule for it, and XLA's partitioner calls the person's partition function
back, in the process that lowered it, with the shardings that Shardy found. Here the same happens in three steps: the
program is lowered with the custom calls (`Partitionings(asking=True)`), whoever has run Shardy on that asks the
functions by `answer`, and the program is lowered again with what they answered, each a `shard_map` of the function for
one device. Shardings are held where Shardy had them before, so that they are the partitioner's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.extend.mlir import ir
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from shardviz._jax.contexts import placed
from shardviz._jax.tracing import here

PARTITIONED_CALL = "CustomSPMDPartitioning"
"""The target of the custom calls; their backend config is their number."""


@dataclass(frozen=True)
class Partitioned:
    """What a partition function answers for one operation: the function for one device, of flat arrays; how it wants
    operands cut, and how its results are; and how Shardy has cut them (`found_in`, `found_out`)."""

    local: Any
    in_specs: tuple[PartitionSpec, ...]
    out_specs: tuple[PartitionSpec, ...]
    found_in: tuple[PartitionSpec, ...]
    found_out: tuple[PartitionSpec, ...]


@dataclass
class Partitionings:
    """What is known of these operations while a program is lowered (as what they compute, by default): whether they
    become custom calls, what functions answered by an operation's number, and the parameters of all that were lowered
    (`met`)."""

    asking: bool = False
    answers: Mapping[int, Partitioned] = field(default_factory=dict)
    met: list[dict[str, Any]] = field(default_factory=list)


class Unanswered(Exception):
    """Why a partition function could not be asked, or its answer not be used."""


def answer(
    params: Mapping[str, Any], mesh: AbstractMesh, ins: Sequence[PartitionSpec], outs: Sequence[PartitionSpec]
) -> Partitioned:
    """Calls the partition function of an operation (one of `Partitionings.met`) as XLA's partitioner does, on a mesh
    without devices, with Shardy's specs of operands and results. Raises Unanswered with the reason where there is no
    answer."""
    if not params["decode_shardings"]:
        raise Unanswered("it wants shardings that name devices (decode_shardings=False)")
    on, call = placed(mesh), params["call"]

    def shapes(avals: Any, specs: Sequence[PartitionSpec], tree: Any) -> Any:
        cut = zip(avals, specs, strict=True)
        return tree.unflatten([jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(on, s)) for a, s in cut])

    in_tree, out_tree = params["in_tree"], params["out_tree"]
    args, results = shapes(call.in_avals, ins, in_tree), shapes(call.out_avals, outs, out_tree)
    try:
        theirs, lower_fn, out_shardings, in_shardings = params["partition"](*params["static_args"], on, args, results)
        in_specs = _specs(in_tree.flatten_up_to(in_shardings), call.in_avals)
        out_specs = _specs(out_tree.flatten_up_to(out_shardings), call.out_avals)
    except Unanswered:
        raise
    except Exception as error:
        raise Unanswered(f"it raised {type(error).__name__}: {error}") from error
    if dict(theirs.shape) != dict(mesh.shape):
        raise Unanswered(f"it answers for another mesh, {dict(theirs.shape)}")

    def local(*flat: Any) -> list[Any]:
        return jax.tree.leaves(lower_fn(*in_tree.unflatten(flat)))

    partitioned = Partitioned(local, in_specs, out_specs, tuple(ins), tuple(outs))
    for spec, aval in zip((*in_specs, *out_specs), (*call.in_avals, *call.out_avals), strict=True):
        _check_divides(spec, aval.shape, mesh)
    try:
        with jax.sharding.use_abstract_mesh(mesh):
            has = jax.eval_shape(
                _mapped(partitioned, mesh), *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in call.in_avals)
            )
    except Exception as error:
        raise Unanswered(f"its function for one device raised {type(error).__name__}: {error}") from error
    if [(a.shape, a.dtype) for a in has] != [(a.shape, a.dtype) for a in call.out_avals]:
        have, wanted = (", ".join(f"{a.dtype}{list(a.shape)}" for a in of) for of in (has, call.out_avals))
        raise Unanswered(f"its function for one device makes {have}, all devices together, instead of {wanted}")
    return partitioned


def _specs(shardings: Sequence[Any], avals: Sequence[Any]) -> tuple[PartitionSpec, ...]:
    if others := [s for s in shardings if not isinstance(s, NamedSharding)]:
        raise Unanswered(f"it answers with {str(others[0])[:80]}, where a NamedSharding is expected")
    if len(shardings) != len(avals):
        raise Unanswered(f"it answers with {len(shardings)} shardings for {len(avals)} arrays")
    return tuple(s.spec for s in shardings)


def _check_divides(spec: PartitionSpec, shape: Sequence[int], mesh: AbstractMesh) -> None:
    for size, axes in zip(shape, spec, strict=False):
        ways = math.prod(mesh.shape[a] for a in ([axes] if isinstance(axes, str) else axes or ()))
        if size % ways:
            raise Unanswered(f"a dimension of {size} does not divide by {ways}")


def _mapped(partitioned: Partitioned, mesh: AbstractMesh) -> Any:
    return jax.shard_map(
        partitioned.local,
        mesh=mesh,
        in_specs=partitioned.in_specs,
        out_specs=list(partitioned.out_specs),
        check_vma=False,
    )


def _program(partitioned: Partitioned, mesh: AbstractMesh) -> Any:
    """The operation as its partition function says it, between the shardings that the partitioner sees."""

    def held(values: Sequence[Any], specs: Sequence[PartitionSpec]) -> list[Any]:
        cut = zip(values, specs, strict=True)
        return [jax.lax.with_sharding_constraint(value, NamedSharding(mesh, spec)) for value, spec in cut]

    def program(*values: Any) -> list[Any]:
        return held(_mapped(partitioned, mesh)(*held(values, partitioned.found_in)), partitioned.found_out)

    return program


@functools.lru_cache(maxsize=1)
def mend_custom_partitioning() -> None:
    """Has JAX lower these operations as `here.partitionings` says, where no devices are."""
    from jax._src import core, custom_partitioning, dispatch, sharding_impls
    from jax._src.interpreters import mlir

    theirs = dispatch.jaxpr_has_prim_requiring_devices
    rule = custom_partitioning._custom_partitioning_lowering_rule

    def requires_devices(jaxpr: Any) -> bool:
        return getattr(here, "device", None) is None and theirs(jaxpr)

    def lowering(ctx: Any, *values: Any, **params: Any) -> Any:
        if getattr(here, "device", None) is None:
            return rule(ctx, *values, **params)
        around, partitionings = ctx.module_context.axis_context, here.partitionings
        whole = isinstance(around, sharding_impls.SPMDAxisContext) and around.manual_axes
        if not (whole and set(around.manual_axes) == set(around.mesh.axis_names)):
            number = len(partitionings.met)
            partitionings.met.append(params)
            mesh = jax.sharding.get_abstract_mesh()
            if partitionings.asking and mesh.size > 1:
                return _custom_call(number, mesh, values, params)
            if number in partitionings.answers:
                program = _program(partitionings.answers[number], mesh)
                return mlir.lower_fun(program, multiple_results=True)(ctx, *values)
        return mlir.lower_fun(core.jaxpr_as_fun(params["call"]), multiple_results=True)(ctx, *values)

    dispatch.jaxpr_has_prim_requiring_devices = requires_devices
    mlir.register_lowering(custom_partitioning.custom_partitioning_p, lowering, cacheable=False)


def _custom_call(number: int, mesh: AbstractMesh, values: Sequence[Any], params: Mapping[str, Any]) -> Any:
    rule: Any
    from jax._src import custom_partitioning_sharding_rule as rules
    from jax._src.interpreters import mlir

    avals, rule = params["call"].out_avals, params["sharding_rule"]
    outs: list[ir.Type] = [ir.RankedTensorType.get(a.shape, mlir.dtype_to_ir_type(a.dtype)) for a in avals]
    ins = [value.type for value in values]
    attributes = {
        "call_target_name": ir.StringAttr.get(PARTITIONED_CALL),
        "backend_config": ir.StringAttr.get(str(number)),
        "has_side_effect": ir.BoolAttr.get(False),
        "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 2),
    }
    if callable(rule):
        written_rule = rule(*params["static_args"], placed(mesh), ins, outs)
        rule, words = (
            written_rule if isinstance(written_rule, (list, tuple)) and len(written_rule) == 2 else (written_rule, {})
        )
        if isinstance(rule, str):
            rule = rules.str_to_sdy_sharding_rule(rule, **words)
    if rule is not None:
        attributes["sdy.sharding_rule"] = rules.sdy_sharding_rule_to_mlir(rule, ins, outs)
    return ir.Operation.create("stablehlo.custom_call", results=outs, operands=values, attributes=attributes).results


def self_partitioned() -> frozenset[str]:
    """The names of the operations that say themselves how they are partitioned, as far as they are known of yet."""
    from jax._src import custom_partitioning, dispatch

    every = {custom_partitioning.custom_partitioning_p, *dispatch.prim_requires_devices_during_lowering}
    names = {str(primitive) for primitive in every}
    return frozenset(name for name in names if "callback" not in name and "inspect" not in name)

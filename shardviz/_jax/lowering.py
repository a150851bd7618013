"""Lowering from jaxprs to StableHLO without devices, and reading and writing of MLIR modules."""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from typing import Any

import jax
from jax._src import core as jax_core
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from shardviz._jax.contexts import StandInDevice, under
from shardviz._jax.mlir import PassManager, ir
from shardviz._jax.tracing import here, thread_value


def lower(
    closed: Any,
    name: str,
    donated: Sequence[bool],
    mesh: AbstractMesh,
    device: StandInDevice,
    specs: Sequence[PartitionSpec] | None = None,
) -> ir.Module:
    """Lower a closed jaxpr, whose shardings are already on `mesh`, to StableHLO for a device; unused arguments stay.
    Dead code is removed first, as `jax.jit` does, because it would influence Shardy's propagation. `specs` shard the
    arguments if the mesh has Explicit axes. Locations contain only the frames of the trace, not those of the caller of
    this function."""
    from jax._src import source_info_util
    from jax._src.interpreters import mlir, partial_eval, pxla
    from jax._src.named_sharding import UNSPECIFIED

    shardings = tuple(NamedSharding(mesh, spec) for spec in specs or [PartitionSpec()] * len(closed.in_avals))
    _patch_default_device()
    _patch_custom_partitioning()
    nowhere = source_info_util.user_context(source_info_util.Traceback())
    with under(mesh), thread_value("device", device), nowhere:  # without a device, JAX would start its backend
        if closed.is_high:  # types that only tracing knows are taken away, as by `jax.stages.Traced.lower`
            closed = jax.jit(jax_core.jaxpr_as_fun(closed)).trace(*closed.in_avals).lojax.jaxpr
        results = len(closed.jaxpr.outvars)
        needed, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * results, instantiate=True)
        lowered = pxla.lower_sharding_computation(
            closed.replace(jaxpr=needed) if needed is not closed.jaxpr else closed,
            "jit",
            name,
            shardings,
            (UNSPECIFIED,) * results,
            (None,) * len(shardings),
            (None,) * results,
            tuple(donated),
            keep_unused=True,
            context_mesh=mesh,
            compiler_options_kvs=(),
            lowering_platforms=(device.platform,),
            lowering_parameters=mlir.LoweringParameters(),
            pgle_profiler=None,
        )
    return lowered.stablehlo()


@functools.lru_cache(maxsize=1)
def _patch_default_device() -> None:
    from jax._src.interpreters import pxla

    theirs = pxla.get_default_device

    def get_default_device() -> Any:
        return getattr(here, "device", None) or theirs()

    pxla.get_default_device = get_default_device


@functools.lru_cache(maxsize=1)
def _patch_custom_partitioning() -> None:
    """Make JAX lower operations with custom partitioning to their plain computation, which needs no devices."""
    from jax._src import core, custom_partitioning, dispatch
    from jax._src.interpreters import mlir

    theirs, rule = dispatch.jaxpr_has_prim_requiring_devices, custom_partitioning._custom_partitioning_lowering_rule

    def requires_devices(jaxpr: Any) -> bool:
        return getattr(here, "device", None) is None and theirs(jaxpr)

    def lowering(ctx: Any, *values: Any, **params: Any) -> Any:
        if getattr(here, "device", None) is None:
            return rule(ctx, *values, **params)
        return mlir.lower_fun(core.jaxpr_as_fun(params["call"]), multiple_results=True)(ctx, *values)

    dispatch.jaxpr_has_prim_requiring_devices = requires_devices
    mlir.register_lowering(custom_partitioning.custom_partitioning_p, lowering, cacheable=False)


def self_partitioned() -> frozenset[str]:
    """Return the names of the operations that define their own partitioning, as far as they are registered so far."""
    from jax._src import custom_partitioning, dispatch

    every = {custom_partitioning.custom_partitioning_p, *dispatch.prim_requires_devices_during_lowering}
    names = {str(primitive) for primitive in every}
    return frozenset(name for name in names if "callback" not in name and "inspect" not in name)


def mlir_context() -> ir.Context:
    """Return a context in which StableHLO, CHLO and Shardy modules can be read."""
    from jax._src.interpreters import mlir

    return mlir.make_ir_context()


def walk(op: ir.Operation, *names: str) -> list[ir.Operation]:
    """Yield an operation and everything inside it, outer operations first; only operations with these names."""
    operations: list[ir.Operation] = []

    def visit(each: ir.Operation) -> Any:
        if not names or each.name in names:
            operations.append(each)
        return ir.WalkResult.ADVANCE

    try:
        op.walk(visit, ir.WalkOrder.PRE_ORDER)
    except RuntimeError as error:  # what MLIR makes of an interrupt inside its callbacks
        if str(error).rstrip(": \n").endswith("KeyboardInterrupt"):
            raise KeyboardInterrupt from None
        raise
    return operations


def bytecode(module: ir.Operation) -> bytes:
    """Return an MLIR module as bytecode, source locations included."""
    buffer = io.BytesIO()
    module.write_bytecode(buffer)
    return buffer.getvalue()


def run_passes(module: ir.Operation, pipeline: str) -> None:
    """Run an MLIR pass pipeline on a module in place, without verifying between passes."""
    manager = PassManager.parse(pipeline)
    manager.enable_verifier(False)
    manager.run(module)


def passed(module: bytes, pipelines: Sequence[str]) -> bytes:
    """Return a module, given as bytecode, after the first of some pass pipelines. The others run too, to see whether
    the process survives them."""
    with mlir_context():
        parsed = ir.Module.parse(module)
        run_passes(parsed.operation, pipelines[0])
        after = bytecode(parsed.operation)
        for pipeline in pipelines[1:]:
            run_passes(parsed.operation, pipeline)
        return after


def ir_type(aval: Any) -> ir.Type:
    """Return the tensor type of an abstract value (of its bits, for PRNG keys), in the entered context."""
    from jax._src import core
    from jax._src.interpreters import mlir

    if jax.numpy.issubdtype(aval.dtype, jax.dtypes.extended):
        aval = core.physical_aval(aval)
    return ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype))


def module_from(data: bytes) -> ir.Module:
    """Return a module from its bytecode, in a context of its own."""
    with mlir_context():
        return ir.Module.parse(data)

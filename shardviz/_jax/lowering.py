"""From jaxprs to StableHLO without devices, and MLIR modules read and written."""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import core as jex_core
from jax.extend.mlir import ir
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from shardviz._jax.contexts import under
from shardviz._jax.partitioning import Partitionings, mend_custom_partitioning
from shardviz._jax.tracing import here, told


def lower(
    closed: Any,
    name: str,
    donated: Sequence[bool],
    mesh: AbstractMesh,
    platform: str,
    specs: Sequence[PartitionSpec] | None = None,
    device_kind: str = "",
    num_cores: int = 1,
    partitionings: Partitionings | None = None,
) -> ir.Module:
    """Lowers a closed jaxpr to StableHLO on `mesh`; unused arguments stay.

    What no result needs is left out first, as `jax.jit` does: it would have a say in Shardy's propagation.

    Args:
        closed: the program, its shardings on `mesh` already.
        name: what the module and JAX's name stack call the function.
        donated: for each flat argument whether its buffer may be reused.
        mesh: the mesh that shardings are written over.
        platform: the platform to lower for, such as `"cpu"`.
        specs: a spec for each argument, where the mesh has Explicit axes; else all are replicated.
        device_kind: JAX's name of the device's kind, which some lowerings on TPUs ask for.
        num_cores: the cores of a device, as JAX counts them.
        partitionings: what becomes of operations that say themselves how they are partitioned; it is told of each.
    """
    from jax._src.interpreters import mlir, partial_eval, pxla
    from jax._src.named_sharding import UNSPECIFIED

    shardings = tuple(NamedSharding(mesh, spec) for spec in specs or [PartitionSpec()] * len(closed.in_avals))
    answering = told("partitionings", partitionings or Partitionings())
    with under(mesh), answering, _no_backend(platform, device_kind or platform, num_cores):
        closed = _low(closed)
        results = len(closed.jaxpr.outvars)
        needed, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * results, instantiate=True)
        if partitionings is not None:
            needed = needed.replace(debug_info=needed.debug_info)  # JAX keeps the modules of jaxprs that it has met
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
            lowering_platforms=(platform,),
            lowering_parameters=mlir.LoweringParameters(),
            pgle_profiler=None,
        )
    return lowered.stablehlo()


def _low(closed: Any) -> Any:
    """The jaxpr without types that only tracing knows, as `jax.stages.Traced.lower` makes it."""
    if not closed.is_high:
        return closed
    return jax.jit(jex_core.jaxpr_as_fun(closed)).trace(*closed.in_avals).lojax.jaxpr


@dataclass(frozen=True)
class _NoDevice:
    """Stands where JAX looks up a default device, of which, on an abstract mesh, it wants to know this only.

    Attributes:
        platform, device_kind, num_cores: the device's.
        runtime_type: its client's: that of the clients that only compile.
        platform_version: its client's; without words of an old compiler, kernels are written for the newest.
    """

    platform: str
    device_kind: str
    num_cores: int = 1
    runtime_type: str = "compile_only_runtime"
    platform_version: str = ""

    @property
    def client(self) -> _NoDevice:
        return self


def _no_backend(platform: str, device_kind: str, num_cores: int) -> AbstractContextManager[None]:
    """Under it, lowering on an abstract mesh does not start JAX's backend, which would take hold of its devices."""
    _mend_default_device()
    mend_custom_partitioning()
    return told("device", _NoDevice(platform, device_kind, num_cores))


@functools.lru_cache(maxsize=1)
def _mend_default_device() -> None:
    from jax._src.interpreters import pxla

    theirs = pxla.get_default_device

    def get_default_device() -> Any:
        return getattr(here, "device", None) or theirs()

    pxla.get_default_device = get_default_device


def mlir_context() -> ir.Context:
    """A context in which StableHLO, CHLO and Shardy modules can be read."""
    from jax._src.interpreters import mlir

    return mlir.make_ir_context()


def walk(op: ir.Operation) -> list[ir.Operation]:
    """An operation and all that is inside it, each operation before those inside it."""
    operations: list[ir.Operation] = []

    def visit(each: ir.Operation) -> Any:
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
    """An MLIR module as bytecode, source locations included."""
    buffer = io.BytesIO()
    module.write_bytecode(buffer)
    return buffer.getvalue()


def run_passes(module: bytes, passes: str) -> None:
    """Runs an MLIR pass pipeline on a module given as bytecode, without the verifier between passes."""
    from jax.extend.mlir.passmanager import PassManager

    with mlir_context():
        parsed = ir.Module.parse(module)
        manager = PassManager.parse(passes)
        manager.enable_verifier(False)
        manager.run(parsed.operation)


def ir_type(aval: Any) -> ir.Type:
    """The tensor type of an abstract value; of a PRNG key's, that of its bits. In a context that is entered."""
    from jax._src import core
    from jax._src.interpreters import mlir

    if jax.numpy.issubdtype(aval.dtype, jax.dtypes.extended):
        aval = core.physical_aval(aval)
    return ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype))


def module_from(data: bytes) -> ir.Module:
    """A module from its bytecode, in a context of its own."""
    with mlir_context():
        return ir.Module.parse(data)

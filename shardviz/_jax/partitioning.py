"""Operations that say in Python how they are partitioned (`custom_partitioning`), without devices.

XLA's partitioner calls the person's function back, on devices that are not there. Here such an operation is lowered to
what it computes.
"""

from __future__ import annotations

import functools
from typing import Any

from shardviz._jax.tracing import here


@functools.lru_cache(maxsize=1)
def mend_custom_partitioning() -> None:
    """Has JAX lower these operations to what they compute where no devices are, and names them in `here.partitioned`.

    Inside a `shard_map` over the whole mesh nothing is left to partition; these are left out.
    """
    from jax._src import core, custom_partitioning, dispatch, sharding_impls
    from jax._src.interpreters import mlir

    theirs = dispatch.jaxpr_has_prim_requiring_devices
    rule = custom_partitioning._custom_partitioning_lowering_rule

    def requires_devices(jaxpr: Any) -> bool:
        return getattr(here, "device", None) is None and theirs(jaxpr)

    def lowering(ctx: Any, *values: Any, **params: Any) -> Any:
        if getattr(here, "device", None) is None:
            return rule(ctx, *values, **params)
        around = ctx.module_context.axis_context
        whole = isinstance(around, sharding_impls.SPMDAxisContext) and around.manual_axes
        if not (whole and set(around.manual_axes) == set(around.mesh.axis_names)):
            here.partitioned.append(str(custom_partitioning.custom_partitioning_p))
        return mlir.lower_fun(core.jaxpr_as_fun(params["call"]), multiple_results=True)(ctx, *values)

    dispatch.jaxpr_has_prim_requiring_devices = requires_devices
    mlir.register_lowering(custom_partitioning.custom_partitioning_p, lowering, cacheable=False)


def self_partitioned() -> frozenset[str]:
    """The names of the operations that say themselves how they are partitioned, as far as they are known of yet."""
    from jax._src import custom_partitioning, dispatch

    every = {custom_partitioning.custom_partitioning_p, *dispatch.prim_requires_devices_during_lowering}
    names = {str(primitive) for primitive in every}
    return frozenset(name for name in names if "callback" not in name and "inspect" not in name)

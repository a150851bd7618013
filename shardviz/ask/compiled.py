"""A `jax.stages.Compiled` as a Report: what the compiler made, read from the finished program.

Shardings of arguments and results are JAX's own, collectives are those of the optimised module, memory is the
executable's own plan. What is no longer in the module (how values inside were sharded, the program as it was
partitioned, the compiler's warnings) is not in the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import NamedSharding, SingleDeviceSharding

from shardviz import _jax, compiler, diagnose
from shardviz.ask import rows
from shardviz.ask.reading import code_size, stated_cost
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.layouts.uneven import shard_shape
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import DEVICE_MEMORY
from shardviz.program import stablehlo_program
from shardviz.records import Collectives, Finding, HostMemory, Memory, PlanRecord, Value


def compiled_report(compiled: Any) -> Report:
    """What is in a compiled program: level `compiled`.

    Args:
        compiled: a `jax.stages.Compiled`, for any platform.

    Returns:
        The report. It has no intermediates, and its collectives are the optimised program's: on a CPU a bfloat16
        all-reduce is one in float32 there, and a reduce-scatter an all-reduce.

    Raises:
        ShardvizError: if the platform gives no text of the program.
        ParseError: if its text cannot be read.
    """
    text = compiled.as_text()
    if not text:
        raise ShardvizError("this jax.stages.Compiled gives no text of its program; analyse the function itself")
    module = compiler.parse(text)
    name = module.name.removeprefix("jit_")
    infos = jax.tree.leaves(compiled.args_info)
    ins = _flat(compiled.input_shardings, len(infos), compiled.in_tree)
    out_infos = _jax.compiled_results(compiled)
    outs = _flat(compiled.output_shardings, len(out_infos), compiled.out_tree)
    mesh = _mesh((*ins, *outs), module.num_partitions)
    kept = tuple(i for i, sharding in enumerate(ins) if sharding is not None)
    parameters = module.entry.parameters
    located = [parameters[n].op_name or None for n in sorted(parameters)]
    names = stablehlo_program.names(
        compiled.in_tree, kept, located if len(located) == len(kept) else [None] * len(kept)
    )
    rows_in = tuple(_row(n, i, s, mesh) for n, i, s in zip(names, infos, ins, strict=True))
    arguments = tuple(replace(v, unused=s is None) for v, s in zip(rows_in, ins, strict=True))
    results = zip(stablehlo_program.result_names(compiled.out_tree), out_infos, outs, strict=True)
    outputs = tuple(_row(n, i, s, mesh) for n, i, s in results)
    called = [names[i] for i in kept]
    collectives = compiler.collectives(module, mesh, arguments=called if len(called) == len(located) else None)
    cost = compiler.with_bytes(compiler.count_flops(module), compiler.count_bytes(module))
    numbers = _jax.finished_numbers(compiled.runtime_executable())
    return Report(
        level="compiled",
        program=name,
        plan=PlanRecord(
            mesh,
            {v.name: v.spec for v in arguments if v.spec is not None},
            {v.name: v.spec for v in outputs},
            {v.name: v.memory_kind for v in arguments if v.on_host},
            {v.name: v.memory_kind for v in outputs if v.on_host},
        ),
        arguments=arguments,
        outputs=outputs,
        intermediates=(),
        collectives=Collectives(collectives),
        target=_platform((*ins, *outs)),
        memory=_memory(numbers["memory"], _platform((*ins, *outs))),
        cost=replace(cost, stated=stated_cost(numbers["cost"])),
        diagnostics=_as_compiled(mesh, (*ins, *outs))
        + diagnose.unknown_loops(cost.unknown_loops)
        + diagnose.unknown_flops(cost.work),
        source=rows.source((), (*collectives, *cost.work)),
        stages={"optimized": text},
        schedule=compiler.schedule_of(module),
        scheduled=compiler.is_scheduled(module),
        versions=rows.versions(),
    )


def _flat(tree: Any, count: int, structure: Any) -> list[Any]:
    """A sharding for each array; None for an argument that nothing uses."""
    shardings = jax.tree.leaves(tree, is_leaf=lambda s: s is None)
    return shardings if len(shardings) == count else structure.flatten_up_to(tree)


def _mesh(shardings: Sequence[Any], devices: int) -> DeviceMesh:
    """The mesh of the first sharding that has one; else one axis over all devices."""
    for sharding in shardings:
        if isinstance(sharding, NamedSharding) and sharding.mesh.axis_names:
            return DeviceMesh.of(sharding.mesh)
    return DeviceMesh(("device",), (devices,))


def _row(name: str, info: Any, sharding: Any, mesh: DeviceMesh) -> Value:
    shape, dtype = tuple(info.shape), str(info.dtype)
    if sharding is None or isinstance(sharding, SingleDeviceSharding):
        spec, shard, text = Spec.of(None, len(shape)), shape, ""
    elif isinstance(sharding, NamedSharding) and DeviceMesh.of(sharding.mesh).shape == mesh.shape:
        spec, text = Spec.of(sharding.spec, len(shape)), ""
        shard = shard_shape(shape, spec, mesh)
    else:
        text = _jax.hlo_sharding_of(sharding, len(shape)) or ""
        spec, shard = compiler.cut(text, shape, mesh) if text else (None, None)
    kind = getattr(sharding, "memory_kind", None) or DEVICE_MEMORY
    donated = getattr(info, "donated", False)
    row = rows.value(name, shape, dtype, spec, shard, donated=donated, memory_kind=kind)
    return replace(row, sharding={**row.sharding, **({"hlo": text} if text else {})})


def _platform(shardings: Sequence[Any]) -> str:
    for sharding in shardings:
        if sharding is not None:
            return next(iter(sharding.device_set)).platform
    return jax.default_backend()


def _memory(stated: Mapping[str, int] | None, target: str) -> Memory | None:
    """The executable's own plan; None where the platform gives none."""
    if not stated:
        return None
    arguments, outputs, aliased, temporaries = (
        stated[f"{what}_size_in_bytes"] for what in ("argument", "output", "alias", "temp")
    )
    if "total_allocation_bytes" in stated:  # since jax 0.11; a TPU's temporaries else have the gaps between them twice
        temporaries = stated["total_allocation_bytes"] - stated["indefinite_allocations"]
    peak = 0 if target == "cpu" else stated.get("peak_memory_in_bytes", 0)  # a CPU's leaves out all temporaries
    together = arguments + outputs - aliased + temporaries
    host = HostMemory(
        *(stated.get(f"host_{what}_size_in_bytes", 0) for what in ("argument", "output", "alias", "temp"))
    )
    return Memory(
        arguments=arguments,
        outputs=outputs,
        aliased=aliased,
        temporaries=temporaries,
        peak=peak or together,
        target=target,
        host=host if host.total else None,
        code=code_size(stated),
        stated=stated,
    )


def _as_compiled(mesh: DeviceMesh, shardings: Sequence[Any]) -> tuple[Finding, ...]:
    text = (
        "read from a finished program: how values inside were sharded, the collectives as they were partitioned and "
        "the compiler's warnings are not in it; analyse the function, or its lowering, for those"
    )
    if mesh.size > 1 and not any(isinstance(s, NamedSharding) for s in shardings):
        text += ". Its shardings have no mesh, so the devices are taken as one axis, 'device'"
    return (Finding("as-compiled", "note", text),)

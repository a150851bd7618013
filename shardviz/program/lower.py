"""From a traced program to StableHLO under a plan, without lowering again when the plan changes.

A program is lowered once for each set of mesh axis names. A plan is then an edit of that module: the mesh's axis sizes,
and `sdy.sharding` on the main function's arguments and results. An edit takes about a millisecond, a lowering fifty.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jax.extend.mlir import ir

from shardviz import _jax
from shardviz.errors import TraceError
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.sdy import axis as sdy_axis
from shardviz.program.explicit import type_spec
from shardviz.program.meshes import abstract_mesh
from shardviz.program.module import MESH, set_mesh, symbol_of
from shardviz.program.trace import Traced, cannot_lower
from shardviz.records import PlanRecord


@dataclass(eq=False)
class Lowered:
    """A lowered program, to be edited by plans.

    Attributes:
        traced: what was lowered.
        module: the module with every argument replicated; never changed.
        lock: MLIR objects are used by one thread at a time.
        locations: what is known of each source location, filled as they are met.
        rehearsed: whether Shardy has been run on it outside the kernel.
    """

    traced: Traced
    module: Any
    lock: threading.Lock = field(default_factory=threading.Lock)
    locations: dict[Any, Any] = field(default_factory=dict)
    rehearsed: bool = False


@dataclass(frozen=True)
class LowerFor:
    """What a program is lowered for: JAX has other lowerings for other platforms, and a few for other chips.

    Attributes:
        platform: `cpu`, `tpu` or `cuda`.
        device_kind: JAX's name of the chip.
        num_cores: the cores that make one JAX device.
    """

    platform: str = "cpu"
    device_kind: str = "cpu"
    num_cores: int = 1


CPU = LowerFor()


def lower(traced: Traced, mesh: DeviceMesh, target: LowerFor = CPU) -> Lowered:
    """Lowers a trace on a mesh; its constraints' meshes become this one, and `jax.debug` callbacks are left out.

    Raises:
        TraceError: if the program calls back to Python for a value, or JAX cannot lower an operation of it.
    """
    if traced.module:
        return Lowered(traced, _jax.module_from(traced.module))
    on = abstract_mesh(mesh)
    closed = _jax.on_mesh(traced.closed, on)
    donated = [a.donated for a in traced.arguments]
    for call in traced.callbacks:
        if not call.reports:
            raise TraceError(
                f"{traced.name} calls {call.name}{f' at {call.source.short}' if call.source else ''}, which JAX lowers "
                "only for devices that are there; explore the function without it"
            )
    types = [type_spec(t) for t in traced.types] or None
    try:
        return Lowered(
            traced,
            _jax.lower(closed, traced.name, donated, on, target.platform, types, target.device_kind, target.num_cores),
        )
    except Exception as error:  # every operation has its own reasons
        raise cannot_lower(traced, target.platform, error) from error


def edited(lowered: Lowered, bound: PlanRecord) -> ir.Operation:
    """A copy of the module with a plan's mesh and shardings.

    To be called with the lock held and its context entered.
    """
    module = lowered.module.operation.clone()
    body = module.regions[0].blocks[0]
    main = next(op for op in body.operations if symbol_of(op) == "main").operation
    set_mesh(module, body, bound.mesh)
    traced = lowered.traced
    ins, outs = _ranks(main)
    _set_shardings(main, "arg_attrs", [bound.in_specs[a.name] for a in traced.arguments], ins)
    fixed = traced.out_types or (None,) * len(traced.outputs)
    _set_shardings(main, "res_attrs", [bound.out_specs[o.name] for o in traced.outputs], outs, fixed)
    module.verify()  # Shardy ends the process when it is given what the verifier would have refused
    return module


def _ranks(main: ir.Operation) -> tuple[list[int], list[int]]:
    """The ranks of the main function's arguments and results; a PRNG key has one more than JAX shows."""
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    inputs, results = ([ir.RankedTensorType(t).rank for t in types] for types in (kind.inputs, kind.results))
    return inputs, results


def edited_bytecode(lowered: Lowered, bound: PlanRecord) -> bytes:
    """The module under a plan, as bytecode."""
    with lowered.lock, lowered.module.context, ir.Location.unknown():
        return _jax.bytecode(edited(lowered, bound))


def _set_shardings(
    main: ir.Operation,
    name: str,
    specs: Sequence[Spec | None],
    ranks: Sequence[int],
    types: Sequence[Spec | None] = (),
) -> None:
    """Writes specs; where there is none but a type, what the type says, its other dimensions left to the compiler."""
    if not specs:
        return
    old = ir.ArrayAttr(main.attributes[name]) if name in main.attributes else [ir.DictAttr.get({})] * len(specs)
    new = []
    for entry, spec, rank, kind in zip(old, specs, ranks, types or (None,) * len(specs), strict=True):
        attributes = {named.name: named.attr for named in ir.DictAttr(entry)}
        attributes.pop("sdy.sharding", None)
        attributes.pop("mhlo.sharding", None)
        if spec is not None:
            attributes["sdy.sharding"] = ir.Attribute.parse(f"#sdy.sharding<@{MESH}, {sdy_spec(spec, rank)}>")
        elif kind is not None:
            attributes["sdy.sharding"] = ir.Attribute.parse(f"#sdy.sharding<@{MESH}, {sdy_spec(kind, rank, '?')}>")
        if "tf.aliasing_output" in attributes:
            # JAX decided by its own placeholder shardings; let XLA decide by the plan's
            del attributes["tf.aliasing_output"]
            attributes["jax.buffer_donor"] = ir.BoolAttr.get(True)
        new.append(ir.DictAttr.get(attributes))
    main.attributes[name] = ir.ArrayAttr.get(new)


def sdy_spec(spec: Spec, rank: int, uncut: str = "") -> str:
    """A spec as Shardy writes it, closed: `[{"data"}, {}]`; with `uncut="?"` the dimensions that it does not cut are
    open. Axes of partial sums stand behind: `[{}], unreduced={"model"}`.
    """
    dims = Spec.of(spec, rank).dims
    text = "[" + ", ".join("{" + (", ".join(map(sdy_axis, axes)) or uncut) + "}" for axes in dims) + "]"
    return text + (f", unreduced={{{', '.join(map(sdy_axis, spec.unreduced))}}}" if spec.unreduced else "")

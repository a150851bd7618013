"""Which result takes the memory of which donated argument, as `jax.jit` decides under a plan's shardings.

JAX decides it when it lowers, by the shapes on one device (`_set_up_aliases` in its `mlir.py`). Here a program is
lowered once, with every argument replicated, so it is decided again for each plan.

>>> whole, half = (Shard((8,), "f32"), Shard((4,), "f32"))
>>> donations({0: whole, 1: half}, [half, whole])
{1: 0, 0: 1}
>>> donations({0: whole, 1: half}, [Shard((8,), "f32", chosen=True)])
{0: None, 1: None}
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardviz._jax.mlir import ir
from shardviz.layouts.uneven import shard_shape
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import DEVICE_MEMORY
from shardviz.records.groups import grouped
from shardviz.stablehlo.module import attributes_of, set_attributes

_ALIAS, _DONOR = "tf.aliasing_output", "jax.buffer_donor"


@dataclass(frozen=True)
class Shard:
    """An argument or a result on one device; the full array if its sharding is the compiler's choice (`chosen`)."""

    shape: tuple[int, ...]
    dtype: str
    memory: str = DEVICE_MEMORY
    chosen: bool = False

    @classmethod
    def of(cls, array: ir.RankedTensorType, spec: Spec | None, mesh: DeviceMesh, memory: str) -> Shard:
        """Return the shard of an array of this type; None is the compiler's choice."""
        shape = tuple(array.shape)
        cut = shape if spec is None else shard_shape(shape, spec, mesh)
        return cls(cut, str(array.element_type), memory, spec is None)


def donations(
    donated: Mapping[int, Shard], results: Sequence[Shard], one_device: bool = False
) -> dict[int, int | None]:
    """Return donated argument (its number) → number of the result that takes its memory; None if the compiler chooses
    it. Each result takes the first free donated argument with its dtype, memory and shape on a device. If a result's
    sharding is the compiler's choice, so is its argument. The compiler also chooses for arguments that match a result
    only in their number of elements, or that match none while some result's sharding is the compiler's choice. On one
    device nothing is left to the compiler."""
    if not donated:
        return {}
    chosen = any(r.chosen for r in results)

    def key(s):
        return replace(s, chosen=False, memory="" if chosen else s.memory)

    waiting = grouped((key(argument), number) for number, argument in donated.items())
    takers: dict[int, int | None] = {}
    for number, result in enumerate(results):
        if queue := waiting.get(key(result)):
            takers[queue.pop(0)] = number if one_device or not result.chosen else None
    taken = set(takers.values())

    def size(s):
        return (math.prod(s.shape), key(s).memory)

    free = Counter(size(r) for number, r in enumerate(results) if number not in taken)
    for number, argument in donated.items():
        if number not in takers and (free[size(argument)] > 0 or (chosen and not one_device)):
            free[size(argument)] -= 1
            takers[number] = None
    return takers


def is_donated(attributes: Mapping[str, object]) -> bool:
    """Return whether the attributes of an argument of a module's main function say that it is donated."""
    return _ALIAS in attributes or _DONOR in attributes


def set_donations(
    main: ir.Operation, arguments: Sequence[Shard], results: Sequence[Shard], unused: Sequence[bool], one_device: bool
) -> None:
    """Write the donations into a module's main function: `tf.aliasing_output`, or `jax.buffer_donor` if XLA chooses.
    Arguments that `jax.jit` drops before it decides (`unused`) are not donated."""
    entries = attributes_of(main, "arg_attrs", len(arguments))
    donated = [i for i, entry in enumerate(entries) if is_donated(entry)]
    if not donated:
        return
    for i in donated:
        entries[i] = {name: value for name, value in entries[i].items() if name not in (_ALIAS, _DONOR)}
    i32 = ir.IntegerType.get_signless(32)
    takers = donations({i: arguments[i] for i in donated if not unused[i]}, results, one_device)
    for i, result in takers.items():
        entries[i][_DONOR if result is None else _ALIAS] = (
            ir.BoolAttr.get(True) if result is None else ir.IntegerAttr.get(i32, result)
        )
    set_attributes(main, "arg_attrs", entries)

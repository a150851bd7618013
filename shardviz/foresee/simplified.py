"""What XLA's compilers do to a module before Shardy, as far as that changes what Shardy finds.

| what | where | as |
|---|---|---|
| CHLO's operations hand shardings on as XLA's rewriting of them does | everywhere | `square`, `ragged_dot` |
| a broadcast that repeats nothing is a reshape | everywhere | `[b, s]` to `[b, s, 1]` |
| each operation stands right behind its operands, what is returned last | everywhere | |
| a loop reads what it only hands on from outside, by way of an open constraint | everywhere | stacked weights |
| a reduction of a reduction is one | not on CPUs | `sum(sum(x, 1), 0)` |
| a broadcast leaves out the dimensions of size one that it widens | not on CPUs | `[b, s, 1]` to `[b, s, n]` |
| a product that sums over nothing is a multiplication | not on CPUs | `nd,ne->end` |
| a product with a factor that has no dimension of its own is a sum of one | on TPUs | `bsdn,dn->bsd` |

Where two shardings conflict, the first that reaches a value wins: so the order of the operations counts, and Shardy
hands shardings on through some operations before others. XLA's CPU compiler simplifies nothing before Shardy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax

from shardviz import _jax
from shardviz._jax.mlir import chlo, ir, sdy, stablehlo
from shardviz.notation import Spec
from shardviz.records.groups import grouped
from shardviz.stablehlo.graph import contraction_of, spec_of_value
from shardviz.stablehlo.module import CONSTRAINT, SHARDING, items, sharding, shardings_of


def simplified(module: ir.Operation, platform: str) -> tuple[ir.Operation, tuple[int | None, ...]]:
    """Return a module as XLA passes it to Shardy, and for each of its constraints the number of the constraint in the
    given module, or None. The module's context must be entered."""
    module = module.clone()
    simplifies = platform != "cpu"  # XLA's CPU compiler hands on to Shardy what it is given
    named = [(op.name, op) for op in _jax.walk(module)]
    by_name = grouped(named)
    numbers = {op: number for number, op in enumerate(by_name.get(CONSTRAINT, ()))}
    for name, operations in by_name.items():
        for op in operations if name.startswith("chlo.") else ():
            if _RULE not in op.attributes and (rule := chlo_rule(op)) is not None:
                op.attributes[_RULE], op.attributes[_KEPT_RULE] = rule, chlo_rule(op, platform) or rule
    for op in by_name.get("stablehlo.reduce", ()) if simplifies else ():
        _merge(op)
    for op in by_name.get("stablehlo.broadcast_in_dim", ()):
        if not _rank(op.operands[0]):
            continue
        if _repeats_nothing(op):
            _reshape(op)
        elif simplifies:
            _without_ones(op)
    for op in by_name.get("stablehlo.dot_general", ()) if simplifies else ():
        _multiply(op, sums=platform == "tpu")
    for op in (op for name, op in named if name in _REORDERED):
        for region in op.regions:
            for block in region.blocks:
                _in_post_order(block)
    loops = _jax.walk(module, "stablehlo.while") if "stablehlo.while" in by_name else ()
    for loop in loops:
        _read_outside(loop)
    return module, tuple(map(numbers.get, _jax.walk(module, CONSTRAINT) if numbers or loops else ()))


_REORDERED = ("func.func", "stablehlo.while", "stablehlo.case", "sdy.manual_computation")


def _in_post_order(block: ir.Block) -> None:
    """Order a block as XLA orders a computation before Shardy: every operation directly behind its operands, the first
    operand first, the returned values last. Source: XLA's `HloComputation::MakeInstructionPostOrder`."""
    operations = [op.operation for op in block.operations]
    place: dict[ir.Value, int] = {result: number for number, op in enumerate(operations) for result in op.results}
    needs = [[place[value] for value in _read(op) if value in place] for op in operations]
    used = {number for needed in needs for number in needed}
    order: dict[int, None] = {}
    for root in (number for number in range(len(operations)) if number not in used):
        stack, entered = [root], set[int]()
        while stack:
            number = stack[-1]
            if number in entered or number in order:
                order.setdefault(stack.pop())
            else:
                entered.add(number)
                stack += reversed(needs[number])
    for number in order:
        if number != len(operations) - 1:
            operations[number].move_before(operations[-1])


def _read(op: ir.Operation) -> list[ir.Value]:
    """Return what an operation reads, also in its regions."""
    if not len(op.regions):
        return list(op.operands)
    return [value for each in _jax.walk(op) for value in each.operands]


def _handed_on(loop: ir.Operation) -> list[int]:
    """Return the positions of the arrays that a loop passes on unchanged."""
    block = loop.regions[1].blocks[0]
    ends = block.operations[len(block.operations) - 1].operands
    pairs = enumerate(zip(block.arguments, ends, strict=True))
    return [place for place, (argument, end) in pairs if argument == end and _rank(end)]


def _rank(value: ir.Value) -> int:
    """Return an array's rank; 0 for a token."""
    return ir.RankedTensorType(value.type).rank if isinstance(value.type, ir.RankedTensorType) else 0


def _read_outside(loop: ir.Operation) -> None:
    """Let a loop read the arrays that it passes on unchanged from outside, through an open constraint, so that their
    shardings reach the operations inside later than those of arrays that it changes. Source: XLA's
    `open-while-free-vars-sharding`."""
    for place in _handed_on(loop):
        value = loop.operands[place]
        uses = [use for region in loop.regions for use in region.blocks[0].arguments[place].uses]
        read = [use for use in uses if use.owner.operation.parent != loop or use.owner.name != "stablehlo.return"]
        if read:
            opened = {"sharding": sharding(Spec(((),) * _rank(value)), _rank(value), "?")}
            outside = ir.Operation.create(CONSTRAINT, [value.type], [value], opened, ip=ir.InsertionPoint(loop))
            for use in read:
                use.owner.operands[use.operand_number] = outside.results[0]


def read_inside(loop: ir.Operation) -> None:
    """Undo `_read_outside` after propagation: the loop carries these arrays, sharded as it reads them."""
    around = [op for _, op in _around(loop) if op.name == "sdy.manual_computation"]
    manual = [axis for op in around for axis in sdy.ManualAxesAttr(op.attributes["manual_axes"])]
    for place in _handed_on(loop):
        value = loop.operands[place]
        for reshard in {use.owner.operation for use in value.uses if use.owner.name == "sdy.reshard"}:
            (result,) = reshard.results
            inside = [(use, op.block) for use in result.uses for op, outer in _around(use.owner) if outer == loop]
            for use, block in inside:
                use.owner.operands[use.operand_number] = block.arguments[place]
            if inside and spec_of_value(result) != Spec.of(spec_of_value(value, manual), _rank(value)):
                loop.operands[place] = result
                whole = [sharding(Spec(), _rank(each)) for each in loop.results]
                per_value = shardings_of(loop, SHARDING) if SHARDING in loop.attributes else whole
                per_value[place] = reshard.attributes["sharding"]
                loop.attributes[SHARDING] = sdy.TensorShardingPerValueAttr.get(per_value)
            elif inside:
                reshard.erase()


def _around(op: Any) -> Iterator[tuple[ir.Operation, ir.Operation]]:
    """Yield the operations around an operation, the innermost first, each after the one inside it."""
    while op.parent is not None:
        yield op.operation, op.parent.operation
        op = op.parent.operation


def _repeats_nothing(broadcast: ir.Operation) -> bool:
    """Return whether a broadcast is a reshape, such as from `[b, s]` to `[b, s, 1]`."""
    (operand,), (result,) = broadcast.operands, broadcast.results
    before, after = ir.RankedTensorType(operand.type), ir.RankedTensorType(result.type)
    order = list(ir.DenseI64ArrayAttr(broadcast.attributes["broadcast_dimensions"]))
    return math.prod(before.shape) == math.prod(after.shape) and order == sorted(order)


def _reshape(broadcast: ir.Operation) -> None:
    """Replace a broadcast that repeats nothing by a reshape, as XLA's simplifier does. Shardy propagates through
    reshapes before it does through broadcasts."""
    (result,) = broadcast.results
    attributes = {name: what for name, what in items(broadcast) if name != "broadcast_dimensions"}
    result.replace_all_uses_with(_reshaped(broadcast, result.type, attributes))
    broadcast.erase()


def _reshaped(broadcast: ir.Operation, kind: ir.Type, attributes: dict[str, Any]) -> ir.Value:
    """Return a broadcast's operand in another shape."""
    at = {"loc": broadcast.location, "ip": ir.InsertionPoint(broadcast)}
    operands = list(broadcast.operands)
    return ir.Operation.create("stablehlo.reshape", [kind], operands, attributes, **at).results[0]


def _without_ones(broadcast: ir.Operation) -> None:
    """Let a broadcast repeat its operand without the dimensions of size 1 that it widens, as XLA's simplifier does:
    `[b, s]`, reshaped to `[b, s, 1]` and broadcast to `[b, s, n]`, is repeated along the last dimension."""
    (operand,), (result,) = broadcast.operands, broadcast.results
    kind, wide = ir.RankedTensorType(operand.type), ir.RankedTensorType(result.type).shape
    order = list(ir.DenseI64ArrayAttr(broadcast.attributes["broadcast_dimensions"]))
    kept = [d for d, to in enumerate(order) if kind.shape[d] == wide[to]]
    if len(kept) == len(order):
        return
    narrow = ir.RankedTensorType.get([kind.shape[d] for d in kept], kind.element_type)
    maker = operand.owner
    if not isinstance(maker, ir.Block) and maker.name == "stablehlo.reshape" and maker.operands[0].type == narrow:
        broadcast.operands[0] = maker.operands[0]
    else:
        broadcast.operands[0] = _reshaped(broadcast, narrow, {})
    broadcast.attributes["broadcast_dimensions"] = ir.DenseI64ArrayAttr.get([order[d] for d in kept])


_LONG = 64
"""The size from which a dimension is worth a TPU's matrix unit: libtpu 0.0.42 was asked with 63 and 64."""


def _multiply(dot: ir.Operation, *, sums: bool) -> None:
    """Replace a product that sums over nothing by a multiplication, as XLA's simplifier does; with `sums` also one with
    a factor that has no dimension of its own, such as `bsdn,dn->bsd`, by a multiplication and a sum. A batched product
    is kept if the other factor's first own dimension and a summed dimension are long. So is one of complex numbers,
    whose zero MLIR's bindings cannot write."""
    summed, batched = contraction_of(dot)
    kinds = [ir.RankedTensorType(value.type) for value in dot.operands]
    own = [[d for d in range(kinds[n].rank) if d not in (*batched[n], *summed[n])] for n in (0, 1)]
    first = next((kinds[n].shape[d] for n in (0, 1) for d in own[n][:1]), 0)
    long = first >= _LONG and any(kinds[0].shape[d] >= _LONG for d in summed[0])
    result = ir.RankedTensorType(dot.results[0].type)
    sums = sums and not isinstance(result.element_type, ir.ComplexType)
    if summed[0] and (not sums or all(own) or (batched[0] and long)):
        return
    kept, element = result.rank, result.element_type
    shape = [*result.shape, *(kinds[0].shape[d] for d in summed[0])]
    begin = len(batched[0])
    where = (
        [*range(begin), *range(begin, begin + len(own[0])), *range(kept, len(shape))],
        [*range(begin), *range(begin + len(own[0]), kept), *range(kept, len(shape))],
    )
    factors = []
    with ir.InsertionPoint(dot), dot.location:
        for n, value in enumerate(dot.operands):
            place = dict(zip((*batched[n], *own[n], *summed[n]), where[n], strict=True))
            if len(place) == len(shape):
                value = stablehlo.transpose(value, sorted(place, key=place.__getitem__))
            else:
                wide = ir.RankedTensorType.get(shape, kinds[n].element_type)
                value = stablehlo.broadcast_in_dim(wide, value, [place[d] for d in sorted(place)])
            factors.append(stablehlo.convert(ir.RankedTensorType.get(shape, element), value))
        product = stablehlo.multiply(*factors)
        if summed[0]:
            scalar = ir.RankedTensorType.get([], element)
            number = ir.IntegerAttr if isinstance(element, ir.IntegerType) else ir.FloatAttr
            zero = stablehlo.constant(ir.DenseElementsAttr.get_splat(scalar, number.get(element, 0)))
            summation = stablehlo.ReduceOp([result], [product], [zero], list(range(kept, len(shape))))
            block = summation.regions[0].blocks.append(scalar, scalar)
            with ir.InsertionPoint(block):
                stablehlo.return_([stablehlo.add(*block.arguments)])
            product = summation.results[0]
    dot.results[0].replace_all_uses_with(product)
    dot.erase()


def _merge(outer: ir.Operation) -> None:
    """Merge a reduction of a reduction's result, `sum(sum(x, 1), 0)`, into one over both dimensions, which needs one
    all-reduce."""
    inner = outer.operands[0].owner
    if isinstance(inner, ir.Block) or inner.name != "stablehlo.reduce" or len(outer.operands) != 2:
        return
    inner = inner.operation
    if len(inner.operands) != 2 or (how := _reducer(inner)) is None or how != _reducer(outer):
        return
    gone = list(ir.DenseI64ArrayAttr(inner.attributes["dimensions"]))
    left = [d for d in range(ir.RankedTensorType(inner.operands[0].type).rank) if d not in gone]
    gone += [left[d] for d in ir.DenseI64ArrayAttr(outer.attributes["dimensions"])]
    outer.operands[0] = inner.operands[0]
    outer.attributes["dimensions"] = ir.DenseI64ArrayAttr.get(sorted(gone))
    if not any(True for _ in inner.results[0].uses):
        inner.erase()


def _reducer(reduction: ir.Operation) -> tuple[str, str] | None:
    """Return the operation that a reduction applies to two elements, and its initial value; None if it applies more
    than one."""
    body = [op.operation.name for op in reduction.regions[0].blocks[0].operations]
    start = reduction.operands[1]
    maker = start.owner
    if not isinstance(maker, ir.Block) and maker.name == "stablehlo.constant":
        start = maker.attributes["value"]
    return (body[0], str(start)) if len(body) == 2 else None


_RULE, _KEPT_RULE = "sdy.sharding_rule", "shardviz.rule"
_OPAQUE = () if jax.__version_info__ >= (0, 12) else ("chlo.erf",)
"""What XLA keeps as an operation of its own, which its Shardy does not look through either."""


def chlo_rule(op: ir.Operation, partitioned_for: str = "") -> ir.Attribute | None:
    """Return the sharding rule of an operation of the CHLO dialect: elementwise for `square`, `erf`, `digamma`; all but
    the last dimension for `top_k`; all but rows and groups for `ragged_dot`; None for others. Shardy has no rule for
    them, and would replicate their operands and results; XLA rewrites them before Shardy runs. `partitioned_for`: the
    platform whose partitioner's rule is returned; all but the TPU's gather the operand of `top_k`."""
    try:
        ins, outs = ([ir.RankedTensorType(v.type).shape for v in values] for values in (op.operands, op.results))
    except ValueError:
        return None
    if op.name in _OPAQUE or not ins:
        return None
    if op.name == "chlo.ragged_dot":
        return _ragged_rule(op)
    whole = ins[0]
    alone = 1 if op.name == "chlo.top_k" else 0  # dimensions that are taken as wholes
    kept = len(whole) - alone
    if any(len(shape) != len(whole) or shape[:kept] != whole[:kept] for shape in (*ins, *outs)):
        return None

    def mapped(shapes: list[list[int]], own: int) -> list[ir.Attribute]:
        dims = [sdy.DimMappingAttr.get([factor]) for factor in (*range(kept), own)[: len(whole)]]
        return [sdy.TensorMappingAttr.get(dims) for _ in shapes]

    sizes = [*whole, *outs[0][kept:]]
    own = list(range(0 if partitioned_for not in ("", "tpu") else kept, kept + 2 * alone)) if alone else []
    return sdy.OpShardingRuleAttr.get(
        sizes, mapped(ins, kept), mapped(outs, kept + alone), need_replication_factors=own
    )


def rule_again(attributes: Any) -> None:
    """Add the rule for its resharding to an operation's attributes again, since Shardy's propagation removes it."""
    if _KEPT_RULE in attributes:
        attributes[_RULE] = attributes[_KEPT_RULE]


def _ragged_rule(op: ir.Operation) -> ir.Attribute:
    """Return the rule of a ragged product, `([i, k], [l, k, j], [l])->([i, j]) reduction={k} need_replication={i, l}`.
    A group of rows may begin anywhere, so rows and groups are not sharded. If rows are summed over, groups come
    first."""
    numbers = chlo.RaggedDotDimensionNumbers(op.attributes["ragged_dot_dimension_numbers"])
    ragged, batch = [*numbers.lhs_ragged_dimensions], [*numbers.lhs_batching_dimensions]
    summed, many = [*numbers.lhs_contracting_dimensions], [*numbers.rhs_group_dimensions]
    meeting = dict(zip(numbers.rhs_batching_dimensions, batch, strict=True))
    meeting |= zip(numbers.rhs_contracting_dimensions, summed, strict=True)
    lhs, rhs, counts = (ir.RankedTensorType(value.type).shape for value in op.operands)
    groups, right = len(lhs), list[int]()
    sizes = [*lhs, counts[-1]]
    for d, size in enumerate(rhs):
        right.append(groups if d in many else meeting.get(d, len(sizes)))
        sizes += [size] * (right[-1] == len(sizes))
    free = [d for d in range(len(lhs)) if d not in (*batch, *summed)]
    result = [*batch, *free, *(factor for factor in right if factor > groups)]
    result = [groups, *result] if set(ragged) <= {*summed} else result
    arrays = [range(len(lhs)), right, [*batch, groups][-len(counts) :], result]
    mappings = [sdy.TensorMappingAttr.get([sdy.DimMappingAttr.get([factor]) for factor in each]) for each in arrays]
    own, reduced = sorted({*ragged, groups}), sorted({*summed} - {*ragged})
    return sdy.OpShardingRuleAttr.get(sizes, mappings[:3], mappings[3:], reduced, own)

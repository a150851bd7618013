"""How many tokens or samples a step takes in, guessed from the program's arguments, with what the guess rests on.

No program says what a batch is. But what a step gets anew each time is mostly an array of whole numbers: token ids
(batch x sequence) or labels (one a sample); or, beside a model's parameters, arrays of floats whose first dimension is
the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shardviz.layouts import itemsize
from shardviz.records import Value
from shardviz.records.groups import grouped
from shardviz.records.report import ReportRecord

_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (16, 32, 64))
"""Eight bits are weights of a quantised model, or pixels."""
_NAMED = ("token", "input_ids", "inputs")
_PIXELS = 3  # dimensions of an image: height, width, channels


@dataclass(frozen=True)
class Batch:
    """What a step takes in: how many `tokens` or `samples` on all devices together, and the sum and the argument that
    they are from."""

    count: float
    what: str
    source: str


def batch_of(report: ReportRecord) -> Batch | None:
    """Tokens or samples of a step, from its arguments.

    Tokens are the product of the dimensions of the largest array of whole numbers (16 bits or more) with two dimensions
    or more, if it is not donated; of those with `token`, `input_ids` or `inputs` in their names where there are such.
    Labels of images (an array that has three dimensions more than they) and arrays of one dimension are one a sample;
    of one dimension only if the floats beside the model begin with it too, so that the group sizes of a ragged product
    are none.
    Scalars, PRNG keys, and what lies in the model (the argument of most arrays) never count.

    Where there are none, floats beside the model are samples by their first dimension, if all have two or four
    dimensions (or one) and agree. Arrays of a shape that the model has too, such as moments, are none. None where there
    is nothing to rest a guess on.
    """
    if inputs := inputs_of(report):
        return _counted(inputs, _beside_model(report))
    floats = samples_of(report)
    if not floats:
        return None
    return Batch(floats[0].shape[0], "samples", f"the first dimension of argument {_largest(floats).name}")


def samples_of(report: ReportRecord) -> tuple[Value, ...]:
    """The arrays of floats beside a model that begin with a dimension of one size, the batch; empty where none are."""
    model = _model(report.arguments)
    if model is None:
        return ()
    shapes = {v.shape for v in report.arguments if _root(v) == model}
    others = (v for v in _beside_model(report) if v.shape not in shapes)
    floats = tuple(v for v in others if "float" in v.dtype or v.dtype == "uint8")
    ranks = {len(v.shape) for v in floats}
    return floats if len({v.shape[0] for v in floats}) == 1 and ranks & {2, 4} and ranks <= {1, 2, 4} else ()


def inputs_of(report: ReportRecord) -> tuple[Value, ...]:
    """The arrays of whole numbers that a step takes in anew: token ids or labels; empty where none are known."""
    if not any(v.dtype in _INTEGERS for v in report.arguments):
        return ()
    others = _beside_model(report)
    floats = [v for v in others if "float" in v.dtype]
    is_key = lambda v: v.dtype == "uint32" and v.shape[-1] in (2, 4)  # noqa: E731  # the words of PRNG keys
    each = lambda v: len(v.shape) > 1 or all(f.shape[:1] == v.shape for f in floats)  # noqa: E731  # one a sample
    return tuple(v for v in others if v.dtype in _INTEGERS and not is_key(v) and each(v))


def _beside_model(report: ReportRecord) -> list[Value]:
    """The arrays among the arguments that a step takes in anew: neither the model's nor donated."""
    model = _model(report.arguments)
    return [v for v in report.arguments if not v.donated and v.shape and _root(v) != model]


def _counted(found: Sequence[Value], others: Sequence[Value]) -> Batch:
    flat = [v for v in found if len(v.shape) > 1] or found
    named = [v for v in flat if any(name in v.name.lower() for name in _NAMED)]
    one = _largest(named or flat)
    rank = len(one.shape)
    pictures = any(v.shape[:rank] == one.shape and len(v.shape) == rank + _PIXELS for v in others)
    what = "samples" if pictures or rank == 1 else "tokens"
    sizes = f"{' x '.join(map(str, one.shape))}, from " if rank > 1 else ""
    return Batch(math.prod(one.shape), what, f"{sizes}argument {one.name}")


def _model(arguments: Sequence[Value]) -> str | None:
    """The argument of most arrays; of single ones, one that is donated. None where there is none or nothing else."""
    roots = grouped((_root(v), v) for v in arguments)
    if len(roots) < 2:
        return None

    def rank(name: str) -> tuple[int, bool, float]:
        arrays = roots[name]
        size = sum(math.prod(v.shape) * itemsize(v.dtype) for v in arrays)
        return len(arrays), any(v.donated for v in arrays), size

    root = max(roots, key=rank)
    many, donated, _ = rank(root)
    return root if many > 1 or donated else None


def _root(value: Value) -> str:
    """`params` of `params['layers']['wq']` and of `params.layers.wq`."""
    return value.name.split("[", 1)[0].split(".", 1)[0]


def _largest(values: Sequence[Value]) -> Value:
    return max(values, key=lambda v: math.prod(v.shape))

"""The number of tokens or samples in a step, guessed from the program's arguments, and the basis of the guess.

No program names its batch. But a step's new input is usually an array of integers: token ids (batch x sequence) or
labels (one per sample). Otherwise it is an array of floats outside the model whose first dimension is the batch.
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
    """The batch of a step: the number of `tokens` or `samples` on all devices, and the product and the argument that
    they are from."""

    count: float
    what: str
    source: str


def batch_of(report: ReportRecord) -> Batch | None:
    """Return the tokens or samples of a step, guessed from its arguments; None without a basis for a guess.

    Tokens are the product of the dimensions of the largest integer array (16 bits or more) that has two dimensions or
    more and is not donated. Arrays with `token`, `input_ids` or `inputs` in their names are preferred. Integers count
    as one per sample if they are labels of images (some array has three more dimensions), or if they have one
    dimension. The latter needs floats outside the model with the same first dimension, because group sizes of a ragged
    product have one dimension too. Scalars, PRNG keys and arrays of the model (the argument with most arrays) never
    count.

    Without such integers, the first dimension of the floats outside the model counts samples, if all of them have two
    or four dimensions (or one) and agree. Arrays with a shape of the model's, such as moments, do not count.
    """
    if inputs := inputs_of(report):
        return _counted(inputs, _beside_model(report))
    floats = samples_of(report)
    if not floats:
        return None
    return Batch(floats[0].shape[0], "samples", f"the first dimension of argument {_largest(floats).name}")


def samples_of(report: ReportRecord) -> tuple[Value, ...]:
    """Return the float arrays outside a model whose first dimension is the batch."""
    model = _model(report.arguments)
    if model is None:
        return ()
    shapes = {v.shape for v in report.arguments if _root(v) == model}
    others = (v for v in _beside_model(report) if v.shape not in shapes)
    floats = tuple(v for v in others if "float" in v.dtype or v.dtype == "uint8")
    ranks = {len(v.shape) for v in floats}
    return floats if len({v.shape[0] for v in floats}) == 1 and ranks & {2, 4} and ranks <= {1, 2, 4} else ()


def inputs_of(report: ReportRecord) -> tuple[Value, ...]:
    """Return the integer arrays that are a step's new input: token ids or labels."""
    if not any(v.dtype in _INTEGERS for v in report.arguments):
        return ()
    others = _beside_model(report)
    floats = [v for v in others if "float" in v.dtype]

    def is_key(v):  # the words of PRNG keys
        return v.dtype == "uint32" and v.shape[-1] in (2, 4)

    def each(v):  # one a sample
        return len(v.shape) > 1 or all(f.shape[:1] == v.shape for f in floats)

    return tuple(v for v in others if v.dtype in _INTEGERS and not is_key(v) and each(v))


def _beside_model(report: ReportRecord) -> list[Value]:
    """Return the arguments that are a step's new input: neither the model's nor donated."""
    model = _model(report.arguments)
    return [v for v in report.arguments if not v.donated and v.shape and _root(v) != model]


def _counted(arrays: Sequence[Value], others: Sequence[Value]) -> Batch:
    flat = [v for v in arrays if len(v.shape) > 1] or arrays
    named = [v for v in flat if any(name in v.name.lower() for name in _NAMED)]
    one = _largest(named or flat)
    rank = len(one.shape)
    pictures = any(v.shape[:rank] == one.shape and len(v.shape) == rank + _PIXELS for v in others)
    what = "samples" if pictures or rank == 1 else "tokens"
    sizes = f"{' x '.join(map(str, one.shape))}, from " if rank > 1 else ""
    return Batch(math.prod(one.shape), what, f"{sizes}argument {one.name}")


def _model(arguments: Sequence[Value]) -> str | None:
    """Return the argument with most arrays; among single arrays, a donated one. None if there is none, or nothing
    else."""
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

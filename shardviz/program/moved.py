"""Where arrays inside a program are moved if a logical dimension is cut whole.

Most dimensions can be cut wherever they occur, and all that is left to do is to add up what devices have summed in
part. Some cannot: a sequence meets itself where queries meet keys, a scan takes slices along stacked layers, a rotary
embedding takes halves, and a `shard_map` takes arrays whole along what its `in_specs` do not name.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jax.extend.mlir.dialects import sdy

from shardviz.program.module import Place, place_of, spec_of, walk

_MOVES: Mapping[str, str] = {
    "sdy.all_gather": "gathering_axes",
    "sdy.all_to_all": "params",
    "sdy.collective_permute": "out_sharding",
}
_QUOTED = re.compile(r'"([^"]*)"')
_DIMS = re.compile(r"\[((?:\{[^{}]*\}(?:, )?)*)\]")
_DIM = re.compile(r"\{([^{}]*)\}")

Whole = Sequence[frozenset[tuple[int, int]]]
"""For each `shard_map` of a module (operand, dimension) pairs that it takes as its specs say, cut by nothing more."""


def taken_whole(module: Any) -> Whole:
    """What each `shard_map` of a module takes as its specs say."""
    return [frozenset(_closed(op)) for op in _manual(module)]


def _closed(op: Any) -> Iterator[tuple[int, int]]:
    for number, each in enumerate(sdy.TensorShardingPerValueAttr(op.attributes["in_shardings"]).shardings):
        dims = _DIMS.search(str(each))
        for d, entry in enumerate(_DIM.findall(dims[1]) if dims else ()):
            if "?" not in entry:
                yield number, d


def moved_along(module: Any, whole: Whole, locations: dict[Any, Place]) -> dict[str, set[str]]:
    """Mesh axis → where a collective moves what it cuts, or a `shard_map` takes whole what it cuts.

    Args:
        module: after propagation, with Shardy's collectives written down.
        whole: as `taken_whole` has it of the module before anything was opened.
        locations: what is known of the module's locations.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for op in walk(module):
        if (name := _MOVES.get(op.name)) is not None:
            for axis in _QUOTED.findall(str(op.attributes[name])):
                found[axis].add(_where(place_of(op.location, locations)))
    for op, taken in zip(_manual(module), whole, strict=True):
        cut = sdy.TensorShardingPerValueAttr(op.attributes["in_shardings"]).shardings
        for number, each in enumerate(cut):
            for d, axes in enumerate(spec_of(each).dims):
                for axis in axes if (number, d) in taken else ():
                    found[axis if isinstance(axis, str) else axis[0]].add(_where(place_of(op.location, locations)))
    return found


def _manual(module: Any) -> Iterator[Any]:
    return (op for op in walk(module) if op.name == "sdy.manual_computation")


def _where(place: Place) -> str:
    frame = place.frame
    if frame is None:
        return "a loop"
    return f"{frame.function.rsplit('.', 1)[-1]}, {os.path.basename(frame.file)}:{frame.line}"

"""Words on the command line that mean something: arrays, and collectives.

>>> array_of("bf16[8192, 4096]")
('bf16', (8192, 4096))
>>> collectives_of("all-gather inside loop larger than 100 MB", argument="VALUE")
{'kind': 'all-gather', 'inside': 'loop', 'larger_than': '100 MB'}
>>> collectives_of("all-reduce over data at model.py:* by partitioner", argument="VALUE")
{'kind': 'all-reduce', 'axes': 'data', 'line': 'model.py:*', 'origin': 'partitioner'}
"""

from __future__ import annotations

import re

from shardviz.errors import ShardvizError
from shardviz.records.collectives import KINDS

_ARRAY = re.compile(r"\s*([A-Za-z]\w*)\s*\[([\d\s,]*)\]\s*")
_WORDS = {
    "over": "axes",
    "inside": "inside",
    "in": "phase",
    "by": "origin",
    "at": "line",
    "of": "dtype",
    "larger than": "larger_than",
}
_NEXT = re.compile(rf"\s+({'|'.join(_WORDS)})\s+")


def array_like(text: str) -> bool:
    """Whether a text is an array, or is meant to be one, and no `module:name`."""
    return "[" in text or ":" not in text


def array_of(text: str) -> tuple[str, tuple[int, ...]]:
    """Element type and shape of `bf16[8192,4096]`; a `ShardvizError` if it is no array."""
    from shardviz.layouts import itemsize

    match = _ARRAY.fullmatch(text)
    if match is None:
        raise ShardvizError(f"ARRAY {text!r}: expected an element type and a shape, such as 'bf16[8192,4096]'")
    itemsize(match[1])
    shape = tuple(int(size) for size in match[2].split(",") if size.strip())
    if any(size >= 2**63 for size in shape):
        raise ShardvizError(f"ARRAY {text!r}: a dimension has {max(shape)} elements; an array's has fewer than 2^63")
    return match[1], shape


def collectives_of(text: str, *, argument: str) -> dict[str, str]:
    """What `report.collectives.where` takes, of `all-gather over data inside loop at model.py:* larger than 100 MB`. A
    `ShardvizError`, which names `argument`, if the text names no kind of collective."""
    kind, *rest = _NEXT.split(" " + text.strip())
    kind = kind.strip()
    where = {} if kind in ("", "any") else {"kind": kind}
    if twice := [word for place, word in enumerate(rest[::2]) if word in rest[: 2 * place : 2]]:
        raise ShardvizError(f"{argument} {text!r}: {twice[0]!r} stands there twice; axes go together, over data,model")
    if kind not in ("any", *KINDS):
        raise ShardvizError(
            f"{argument} {text!r}: expected a kind of collective (any, {', '.join(KINDS)}), and behind it what you "
            "like of: over AXES, inside loop, at LINE, by partitioner, in backward, of bfloat16, larger than 100 MB"
        )
    return where | {_WORDS[word]: value.strip() for word, value in zip(rest[::2], rest[1::2], strict=True)}

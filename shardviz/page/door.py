"""Validation of the traits that the page sets; `explorer/edits.py` validates edits.

A message is untrusted JSON from a browser. Invalid values are refused as a whole: the page gets the reason, and nothing
changes.

>>> trait("device", 3)
3
>>> trait("device", "3")
Traceback (most recent call last):
    ...
shardviz.errors.ShardvizError: the page sent 'device' that does not fit: Expected `int`, got `str`
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shardviz.errors import ShardvizError, excerpt
from shardviz.explorer.edits import Text, Whole, fitting


class Query(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The search and sort settings of the user; see `found_values` and `stages_shown` for the fields."""

    text: Text | None = None
    changed: bool | None = None
    line: Text | None = None
    sort: Text | None = None
    stage: Text | None = None
    find: Text | None = None
    at: Whole | None = None


_TRAITS: dict[str, Any] = {
    "query": Query,
    "wants": Text,
    "reading": str,  # a text that is too long gets its own message
    **dict.fromkeys(("selected", "selected_at", "tab"), Text),
    "device": Whole,
    "opened": list[Text],
    "span": Annotated[list[Annotated[float, Meta(ge=0, le=1)]], Meta(min_length=2, max_length=2)],
    "_page": Literal[""],  # the page has loaded its code
}
"""Trait → the type of its JSON value."""


_Number = Annotated[int, Meta(ge=0, lt=2**53)]


def number(seq: Any) -> int:
    """Return the number of an edit, by which the page recognises the answer. Raises ShardvizError if it is no valid
    number."""
    return fitting(seq, _Number, "the number of an edit")


def trait(name: str, value: Any) -> Any:
    """Return the validated value of a trait. Raises ShardvizError if the page may not set the trait, or not to this
    value."""
    if name not in _TRAITS:
        raise ShardvizError(f"the page sent {excerpt(name)!r}, which only the kernel sets")
    fit = fitting(value, _TRAITS[name], repr(name))
    return msgspec.to_builtins(fit) if isinstance(fit, Query) else fit

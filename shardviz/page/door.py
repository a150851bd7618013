"""What the page may set, each value checked before it is taken; its edits are read by `explorer/edits.py`.

A message is plain JSON from a browser, so anything may stand in it. What does not fit is refused as a whole: the page
is told why, and nothing changes.

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
    """What a person looks for: `view.panes.found_values` and `view.stages.stages_shown` say what each field means."""

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
    "reading": str,  # what is too long to be read is told beside it
    **dict.fromkeys(("selected", "selected_at", "tab"), Text),
    "device": Whole,
    "opened": list[Text],
    "span": Annotated[list[Annotated[float, Meta(ge=0, le=1)]], Meta(min_length=2, max_length=2)],
    "_page": Literal[""],  # the page has taken its code
}
"""What each trait that the page sets is in JSON."""


_Number = Annotated[int, Meta(ge=0, lt=2**53)]


def number(seq: Any) -> int:
    """The number of an edit, by which the page knows that it was answered; a `ShardvizError` if it is none."""
    return fitting(seq, _Number, "the number of an edit")


def trait(name: str, value: Any) -> Any:
    """The value of a trait that the page sets; a `ShardvizError` if the page does not set it, or not to that."""
    if name not in _TRAITS:
        raise ShardvizError(f"the page sent {excerpt(name)!r}, which only the kernel sets")
    fit = fitting(value, _TRAITS[name], repr(name))
    return msgspec.to_builtins(fit) if isinstance(fit, Query) else fit

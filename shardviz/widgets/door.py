"""What the page may say: the one door through which its messages come, each checked before anything is done.

A message is plain JSON from a browser, so anything may stand in it. What does not fit is refused as a whole: the page
is told why, and nothing changes. An edit has the parameters of a method of `ExplorerState` by name, lists as tuples.

>>> door = Door(EDITS)
>>> door.edit({"seq": 7, "op": "set_dim", "name": "w", "dimension": 0, "axes": [["z", 1, 2]]})
('set_dim', {'name': 'w', 'dimension': 0, 'axes': (('z', 1, 2),), 'twins': False, 'layers': False})
>>> door.edit({"seq": 8, "op": "set_dim", "name": "w", "dimension": "0", "axes": []})
Traceback (most recent call last):
    ...
shardviz.errors.ShardvizError: the page sent an edit that does not fit: Expected `int`, got `str` - at `$.dimension`
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import Meta

from shardviz.errors import ShardvizError, excerpt
from shardviz.notation.bounds import MOST_DEVICES, MOST_NAMED, MOST_PASTED
from shardviz.session.explorer import ExplorerState

EDITS = (
    *("set_spec", "set_dim", "move_axis", "set_out_spec", "set_out_dim", "move_out_axis"),
    *("set_memory", "set_out_memory", "constrain"),
    *("add_axis", "remove_axis", "rename_axis", "resize_axis", "set_target", "set_order", "exchange_axes"),
    *("cut_dimension", "rename_dimension", "take_way", "dismiss"),
    *("add_rule", "make_rule", "set_rule", "move_rule", "remove_rule"),
    *("pin", "open_card", "rename_card", "move_card", "delete_card", "compare_with"),
    *("offer_presets", "close_offers", "take_offer", "find_best", "stop_finding"),
    *("try_remedies", "take_remedy", "ask_why", "ask_without", "ask_recorded", "close_why"),
    *("undo", "redo", "stop", "recompile", "finish", "show_passes"),
)
"""What the page may ask for: methods of the state. An edit has their arguments by name."""

Text = Annotated[str, Meta(max_length=MOST_PASTED)]
Whole = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
_Axis = str | tuple[str, int, int]  # without bounds, which the spec has: msgspec 0.22 misreads a tuple beside a bound

_PARAMETERS: dict[str, Any] = {
    **dict.fromkeys(
        ("name", "card", "offer", "action", "axis", "kind", "old", "new", "one", "other", "target", "pattern", "line"),
        Text,
    ),
    **dict.fromkeys(("dimension", "place", "to", "occurrence", "cause"), Whole),
    "spec": Text,
    "axes": Annotated[tuple[_Axis, ...], Meta(max_length=MOST_NAMED)],
    "size": Whole | Text,  # what was typed, where it is no number: the mesh says why not
    "order": Text | Annotated[tuple[Whole, ...], Meta(max_length=MOST_DEVICES)],
    **dict.fromkeys(("twins", "layers"), bool),
}
"""What each parameter of an edit is in JSON. It may be null where the method takes None."""


class Query(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a person looks for: `view.panes.found_values` and `view.stages.stages_shown` say what each field means."""

    text: Text | None = None
    changed: bool | None = None
    line: Text | None = None
    sort: Text | None = None
    stage: Text | None = None
    find: Text | None = None
    against: Text | None = None
    only: bool | None = None
    at: Whole | None = None


class Look(msgspec.Struct, forbid_unknown_fields=True):
    """Where a view is that is not the first (see `asides.py`), in the names of the traits of the first."""

    id: Annotated[str, Meta(min_length=1, max_length=100)]
    tab: Text
    selected: Text
    selected_at: Text
    query: Query
    reading: str
    device: Whole


_TRAITS: dict[str, Any] = {
    "query": Query,
    **dict.fromkeys(("trying", "wants", "hovered"), Text),
    "reading": str,  # what is too long to be read is told beside it
    **dict.fromkeys(("selected", "selected_at", "tab"), Text),
    "device": Whole,
    "edits": list[Any],  # each has a door of its own
    "_page": Literal[""],  # the page has taken its code
}
"""What each trait that the page sets is in JSON."""


class _Numbered(msgspec.Struct):
    seq: Annotated[int, Meta(ge=0, lt=2**53)]


class Door:
    """Checks messages.

    Args:
        operations: the methods of `ExplorerState` that may be asked for.
    """

    def __init__(self, operations: Iterable[str]):
        self._messages: Any = Union[tuple(map(_message, operations))]  # noqa: UP007 - made at run time

    def number(self, edit: Any) -> int:
        """The number of an edit, by which the page knows that it was answered.

        Raises:
            ShardvizError: if it has none.
        """
        return int(_fitting(edit, _Numbered, "an edit").seq)

    def edit(self, edit: Any) -> tuple[str, dict[str, Any]]:
        """The name of the method that an edit asks for, and its arguments.

        Raises:
            ShardvizError: if there is no such method, or these are not its arguments.
        """
        own = {key: value for key, value in edit.items() if key != "seq"} if isinstance(edit, dict) else edit
        found = _fitting(own, self._messages, "an edit")
        return type(found).__name__, msgspec.structs.asdict(found)

    def look(self, message: Any) -> Look:
        """Where another view is.

        Raises:
            ShardvizError: if that is not what it says.
        """
        return _fitting(message, Look, "a look")

    def trait(self, name: str, value: Any) -> Any:
        """The value of a trait that the page sets.

        Raises:
            ShardvizError: if the page does not set it, or not to that.
        """
        if name not in _TRAITS:
            raise ShardvizError(f"the page sent {excerpt(name)!r}, which only the kernel sets")
        if name == "edits" and isinstance(value, list):
            value = [_sendable(edit) for edit in value]
        found = _fitting(value, _TRAITS[name], repr(name))
        return msgspec.to_builtins(found) if isinstance(found, Query) else found


def _message(operation: str) -> Any:
    """The type of the messages that ask for a method: its parameters are the fields."""
    _, *parameters = inspect.signature(getattr(ExplorerState, operation)).parameters.values()
    fields: list[Any] = []
    for each in parameters:
        kind = _PARAMETERS[each.name]
        if each.default is None or each.annotation == "Any":
            kind |= None
        fields.append((each.name, kind) if each.default is each.empty else (each.name, kind, each.default))
    return msgspec.defstruct(operation, fields, tag=operation, tag_field="op", forbid_unknown_fields=True, kw_only=True)


def _sendable(edit: Any) -> Any:
    """An edit that can be sent back to the page; of one that cannot, its number, by which it is refused."""
    try:
        _check_text(edit)
    except (UnicodeError, RecursionError):
        return {"seq": edit["seq"]} if isinstance(edit, dict) and type(edit.get("seq")) is int else None
    return edit


def _check_text(value: Any) -> None:
    json.dumps(value, ensure_ascii=False).encode()  # half a letter (a surrogate) can be sent nowhere


def _fitting(value: Any, kind: Any, what: str) -> Any:
    """The value as a type has it.

    Raises:
        ShardvizError: if it does not fit.
    """
    try:
        found = msgspec.convert(value, kind)
        _check_text(value)
    except (msgspec.ValidationError, UnicodeError, RecursionError) as error:
        why = str(error) if isinstance(error, msgspec.ValidationError) else type(error).__name__
        raise ShardvizError(f"the page sent {what} that does not fit: {excerpt(why)}") from None
    return found

"""JSON as the page gets what every edit changes: each thing said once, however often it is there.

A Document repeats itself: the same axes, the same words and tips, rows of the same fields. What is there more than once
stands in a table, of an object only the values are sent, and that is half of it. `static/packed.js` reads it.

    [0, ...]   an array                          [-1, x]    the number x
    [k, ...]   the values of `keys[k - 1]`       [-2, ...]  an array of numbers
    n          `table[n]`, which may point to what stands before it

>>> packed([{"t": "model"}, {"t": "model"}, 3])
{'keys': [['t']], 'table': ['model', [1, 0]], 'value': [0, 1, 1, [-1, 3]]}
"""

from __future__ import annotations

from typing import Any

_SHORT = 2
"""Letters of a text that is no longer than a place in the table."""


def packed(value: Any, _: Any = None) -> dict[str, Any]:
    """A value of plain JSON; the second argument is the widget that a trait's `to_json` is given."""
    packing = _Packing()
    root = packing.node(value)
    told = packing.told(root)
    return {"keys": [list(keys) for keys in packing.shapes], "table": packing.table, "value": told}


class _Node(int):
    """The number of a text, an array or an object; equal ones have the same. They begin at 2: 1 equals True."""


class _Packing:
    """A packing under way.

    Attributes:
        shapes: the keys of an object → its number.
        table: what is said once for several places.
    """

    def __init__(self) -> None:
        self.shapes: dict[tuple[str, ...], int] = {}
        self.table: list[Any] = []
        self._numbers: dict[Any, _Node] = {}
        self._nodes: list[Any] = [None, None]
        self._uses = [0, 0]
        self._places: dict[int, int] = {}

    def node(self, value: Any) -> Any:
        """A value's node; what is said in place stays."""
        kind = type(value)
        if kind is str:
            made: Any = value
        elif kind is dict:
            keys = tuple(value)
            shape = self.shapes.setdefault(keys, len(self.shapes)) + 1
            made = (shape, *[self.node(each) for each in value.values()])
        elif kind is list or kind is tuple:
            if value and all(type(each) is int for each in value):
                return (-2, *value)
            made = (0, *[self.node(each) for each in value])
        else:
            return value if value is None or kind is bool else (-1, value)
        found = self._numbers.get(made)
        if found is None:
            found = self._numbers[made] = _Node(len(self._nodes))
            self._nodes.append(made)
            self._uses.append(0)
        self._uses[found] += 1
        return found

    def told(self, node: Any) -> Any:
        """How a node is said where it stands."""
        if type(node) is not _Node:
            return list(node) if type(node) is tuple else node
        place = self._places.get(node)
        if place is not None:
            return place
        made = self._nodes[node]
        told = made if type(made) is str else [made[0], *map(self.told, made[1:])]
        if self._uses[node] > 1 and len(made) > (_SHORT if type(made) is str else 1):
            self._places[node] = len(self.table)
            self.table.append(told)
            return self._places[node]
        return told

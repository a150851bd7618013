"""What a Document says that was sent to the page."""

from __future__ import annotations

from typing import Any


def rows(pane, name):
    """The rows of a pane's table, each a list of what its cells say."""
    return [[said(cell) for cell in row["cells"]] for row in table(pane["document"]["blocks"], name)["rows"]]


def said(cell):
    """Pieces as plain words."""
    parts = cell if isinstance(cell, list) else [cell]
    return " ".join(filter(None, (part if isinstance(part, str) else part.get("t", "") for part in parts)))


def table(blocks, name) -> Any:
    """The block with a name, or the table whose caption begins with it."""
    for block in blocks:
        if block.get("name") == name or block.get("caption", "").startswith(name):
            return block
        if found := table(block.get("blocks", []), name):
            return found
    return None


def card(explorer, column) -> Any:
    """What stands in a column of the open card: its pieces."""
    cards = table(explorer.cards["document"]["blocks"], "cards")
    (now,) = [row for row in cards["rows"] if row["sel"][1] == explorer.cards["at"]]
    found = now["cells"][[each.get("title", "") for each in cards["columns"]].index(column)]
    return found if isinstance(found, list) else [found]


def kpi(explorer, column) -> str:
    """What a column of the open card says."""
    return said(card(explorer, column))


def cells(content) -> dict[int, str]:
    """What is said of the cell of a shard map's Document that holds each place of the mesh."""
    figure = content.blocks[0]
    shapes = [shape for shape in figure.of.shapes if getattr(shape, "select", "") == "cell"]
    return {
        place: tip for shape in shapes for places, tip in zip(shape.keys, shape.tips, strict=True) for place in places
    }

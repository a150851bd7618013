"""What a Document says that was sent to the page."""

from __future__ import annotations


def rows(pane, name):
    """The rows of a pane's table, each a list of what its cells say."""
    return [[said(cell) for cell in row["cells"]] for row in table(pane["document"]["blocks"], name)["rows"]]


def said(cell):
    """Pieces as plain words."""
    parts = cell if isinstance(cell, list) else [cell]
    return " ".join(part if isinstance(part, str) else part.get("t", "") for part in parts)


def table(blocks, name):
    """The block with a name, or the table whose caption begins with it."""
    for block in blocks:
        if block.get("name") == name or block.get("caption", "").startswith(name):
            return block
        if found := table(block.get("blocks", []), name):
            return found
    return None

"""Traffic as the page gets it: tables of cells, each with its strength, its bytes in words, and its mesh axis."""

from __future__ import annotations

import numpy as np

from shardviz.costs.step_cost import StepCost
from shardviz.records.amounts import format_bytes
from shardviz.render.traffic_scene import Table, strengths, tables_of
from shardviz.widgets.payload import Json

MOST_CELLS = 64
_STEPS = 8
"""Strengths that are told apart."""


def traffic_json(cost: StepCost) -> Json:
    """Device to device up to 64 devices, else along each axis; places of long axes are taken together."""
    tables = [_table(cost, table) for table in tables_of(cost)]
    return {"tables": [t for t in tables if t["size"] > 1], "steps": _STEPS}


def _table(cost: StepCost, table: Table) -> Json:
    values, block = merged(table.values)
    size = len(values)
    rows, columns = np.nonzero(values)
    amounts = values[rows, columns]
    most = float(amounts.max()) if len(amounts) else 0.0
    strong = np.ceil(strengths(amounts, most) * _STEPS).astype(int) if len(amounts) else np.zeros(0, int)
    texts = [format_bytes(float(v)) for v in amounts]
    words = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    along = table.axis[::block, ::block] if block > 1 else table.axis
    cells = [
        [int(i), int(j), int(s), words[t], int(along[i, j])]
        for i, j, s, t in zip(rows, columns, strong, texts, strict=True)
    ]
    sent = float(table.values.sum(axis=1).max()) if len(amounts) else 0.0
    title = f"{table.title}: a device sends {format_bytes(sent)} at most" if sent else f"{table.title}: nothing moves"
    return {
        "title": table.title,
        "along": table.along,
        "size": size,
        "block": block,
        "cells": cells,
        "words": list(words),
        "names": list(cost.mesh.names),
        "sent": format_bytes(sent),
        "text": title + (f"; a cell is {block} x {block} places, their sum for one device" if block > 1 else ""),
    }


def merged(values: np.ndarray) -> tuple[np.ndarray, int]:
    """A table of at most 64 rows and columns, each cell the mean of a row's bytes to the columns it stands for."""
    block = next(b for b in range(-(-len(values) // MOST_CELLS), len(values) + 1) if len(values) % b == 0)
    if block == 1:
        return values, 1
    size = len(values) // block
    return values.reshape(size, block, size, block).sum(axis=3).mean(axis=1), block

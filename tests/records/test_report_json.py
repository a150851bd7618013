"""Reports as JSON: what comes back is what was written, and what is no report is refused by the field that is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from tests.view.sample import report


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to each number, text and truth value."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield from leaves(item, (*path, key))
    if not isinstance(data, dict | list) and data is not None:
        yield path


def changed(path: tuple[Any, ...], to: Any) -> str:
    """The sample's JSON with another value at a place."""
    data = json.loads(report().to_json())
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = to
    return json.dumps(data)


LEAVES = [path for path in leaves(json.loads(report().to_json())) if path != ("shardviz_report",)]


def test_what_is_read_is_what_was_written():
    assert Report.from_json(report().to_json()) == report()
    assert Report.from_json(report().to_json(indent=2)) == report()
    assert not Report.from_json(report().to_json(stages=False)).stages


@pytest.mark.parametrize("wrong", [{"evil": 1}, ["<script>"], None], ids=["object", "list", "null"])
def test_a_field_of_another_type_is_refused_and_named(wrong: Any):
    for path in LEAVES:
        try:
            read = Report.from_json(changed(path, wrong))
        except ShardvizError as error:
            assert "damaged" in str(error) and str(path[0]) in str(error), path
        else:  # where nothing is allowed, nothing was read, and a list of names stays one
            assert wrong is None or (isinstance(read, Report) and "axes" in path), path


def test_text_in_place_of_a_number_is_refused():
    numbers = [path for path in LEAVES if isinstance(at(path), int | float) and not isinstance(at(path), bool)]
    assert len(numbers) > 40
    for path in numbers:
        with pytest.raises(ShardvizError, match=str(path[0])):
            Report.from_json(changed(path, "<img src=x onerror=alert(1)>"))


def at(path: tuple[Any, ...]) -> Any:
    data: Any = json.loads(report().to_json())
    for key in path:
        data = data[key]
    return data


@pytest.mark.parametrize("text", [None, 3, [], {"shardviz_report": 1}], ids=repr)
def test_what_is_no_text_is_refused(text):
    with pytest.raises(ShardvizError, match="no shardviz report: not JSON"):
        Report.from_json(text)

"""Reports as JSON: what comes back is what was written, and what is no report is refused by the field that is wrong."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from tests.view.sample import report


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to whatever stands in JSON."""
    if path:
        yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


TEXT = report().to_json()
SAMPLE = json.loads(TEXT)


def at(path: tuple[Any, ...]) -> Any:
    """What stands at a place of the sample's JSON."""
    return functools.reduce(lambda data, key: data[key], path, SAMPLE)


def changed(path: tuple[Any, ...], to: Any) -> str:
    """The sample's JSON with another value at a place."""
    data = json.loads(TEXT)
    functools.reduce(lambda inner, key: inner[key], path[:-1], data)[path[-1]] = to
    return json.dumps(data)


LEAVES = [
    path for path in places(SAMPLE) if path != ("shardviz_report",) and not isinstance(at(path), dict | list | None)
]
NUMBERS = [path for path in LEAVES if isinstance(at(path), int | float) and not isinstance(at(path), bool)]


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
    assert len(NUMBERS) > 40
    for path in NUMBERS:
        with pytest.raises(ShardvizError, match=str(path[0])):
            Report.from_json(changed(path, "<img src=x onerror=alert(1)>"))


@pytest.mark.parametrize("text", [None, 3, [], {"shardviz_report": 1}], ids=repr)
def test_what_is_no_text_is_refused(text):
    with pytest.raises(ShardvizError, match="not a shardviz report: not JSON"):
        Report.from_json(text)

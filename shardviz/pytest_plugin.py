"""A pytest plugin for contracts: golden reports, `--update-goldens`, and the details of a failed `only`.

    def test_step(golden_report):
        report = sv.analyze(step, params, batch, mesh={"data": 8}, in_specs=...)
        assert report.collectives.only("all-reduce", axes="data")
        golden_report(report, tolerance={"temporaries": "5%"})

pytest finds it by itself where shardviz is installed. It imports nothing of shardviz until a test asks.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import pytest

OPTION = "--update-goldens"
_MOST = 120


class GoldenReport(Protocol):
    """The value of the fixture `golden_report`."""

    def __call__(self, report: Any, name: str = "", *, tolerance: Mapping[str, str | float] | None = None) -> None:
        """Compare a report with its golden file, in `goldens/` beside the test (see `golden_file`), or write the
        file."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shardviz", "golden reports of shardviz")
    with contextlib.suppress(ValueError):  # another plugin's option of the same name means the same
        group.addoption(OPTION, action="store_true", help="write golden files anew instead of comparing with them")


@pytest.fixture
def golden_report(request: pytest.FixtureRequest) -> GoldenReport:
    """Return a function that compares a report with its golden file; see `GoldenReport`."""

    names: set[str] = set()

    def check(report: Any, name: str = "", *, tolerance: Mapping[str, str | float] | None = None) -> None:
        if name in names:
            pytest.fail(f"golden_report was called twice with the name {name!r}; give each report of a test its own")
        names.add(name)
        path = request.path.parent / "goldens" / golden_file(request.node, name)
        report.check_golden(path, tolerance=tolerance, update=bool(request.config.getoption(OPTION)))

    return check


def golden_file(test: pytest.Item, name: str = "") -> str:
    """Return the name of a test's golden file, which no other test of the folder has.

    `test_step` in `test_train.py` has `test_train.test_step.json`. If the test has a class or parameters, or its name
    has a capital letter, which some file systems do not distinguish, the name ends in a digest:
    `test_train.TestStep.test_step-8-data.d67c0ac9b1.json`.
    """
    inside = itertools.dropwhile(lambda node: not isinstance(node, pytest.File), test.listchain())
    parts = [test.path.name.removesuffix(".py"), *(node.name for node in list(inside)[1:])]
    stem = ".".join(parts)
    if name or len(parts) > 2 or len(stem) > _MOST or not all(re.fullmatch("[a-z0-9_]+", part) for part in parts):
        digest = hashlib.sha256(json.dumps([*parts, name]).encode()).hexdigest()[:10]
        readable = re.sub(r"[^A-Za-z0-9_.]+", "-", f"{stem} {name}".strip())[:_MOST].strip("-.")
        stem = f"{readable}.{digest}"
    return f"{stem}.json"


def _failed() -> list[Any]:
    """Return the `only`s that were false; empty if shardviz's records are not loaded."""
    module = sys.modules.get("shardviz.records.collectives")
    return [] if module is None else module.Only.failed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    _failed().clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show in full what pytest's own line of a failed `assert ...only(...)` shortens."""
    report: Any = yield
    if call.when == "call" and call.excinfo is not None and call.excinfo.errisinstance(AssertionError):
        report.sections += [(f"shardviz: {only.asked}", repr(only)) for only in _failed()]
    return report

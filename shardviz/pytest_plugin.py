"""A pytest plugin for contracts: golden reports, `--update-goldens`, and what a failed `only` found.

    def test_step(golden_report):
        report = sv.analyze(step, params, batch, mesh={"data": 8}, in_specs=...)
        assert report.collectives.only("all-reduce", axes="data")
        golden_report(report, tolerance={"temporaries": "5%"})

pytest finds it by itself where shardviz is installed. It imports nothing of shardviz until a test asks.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import pytest

OPTION = "--update-goldens"


class GoldenReport(Protocol):
    """What the fixture `golden_report` gives."""

    def __call__(self, report: Any, name: str = "", *, tolerance: Mapping[str, str | float] | None = None) -> None:
        """Compares a report with its golden file, `goldens/<test><name>.json` beside the test; or writes that."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shardviz", "golden reports of shardviz")
    with contextlib.suppress(ValueError):  # another plugin's option of the same name means the same
        group.addoption(OPTION, action="store_true", help="write golden files anew instead of comparing with them")


@pytest.fixture
def golden_report(request: pytest.FixtureRequest) -> GoldenReport:
    """A function that compares a report with its golden file; see `GoldenReport`."""

    def check(report: Any, name: str = "", *, tolerance: Mapping[str, str | float] | None = None) -> None:
        stem = re.sub(r"[^\w.-]+", "-", f"{request.node.name}{'-' if name else ''}{name}").strip("-")
        path = request.path.parent / "goldens" / f"{stem}.json"
        report.check_golden(path, tolerance=tolerance, update=bool(request.config.getoption(OPTION)))

    return check


def _failed() -> list[Any]:
    """The `only`s that were false; none where nothing of shardviz's records was loaded."""
    module = sys.modules.get("shardviz.records.collectives")
    return [] if module is None else module.Only.failed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    _failed().clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Shows in full what pytest's own line of a failed `assert ...only(...)` has to shorten."""
    report: Any = yield
    if call.when == "call" and call.excinfo is not None and call.excinfo.errisinstance(AssertionError):
        report.sections += [(f"shardviz: {only.asked}", repr(only)) for only in _failed()]
    return report

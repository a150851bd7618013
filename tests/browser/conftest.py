"""Fixtures `lab` and `page`; everything here is marked `browser` and skipped where there is no browser."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.harness import Lab, LabPage, running_lab

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A JupyterLab server with copies of the shipped notebooks in its folder."""
    if importlib.util.find_spec("jupyterlab") is None:
        pytest.skip("no jupyterlab: pip install 'shardviz[lab,test]'")
    with running_lab() as lab:
        for notebook in sorted((HERE.parents[1] / "notebooks").glob("*.ipynb")):
            lab.add(notebook)
        yield lab


@pytest.fixture
def page(browser, lab: Lab, request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """A fresh page on the server; when the test ends its kernels end too. A failed test leaves a picture."""
    page = LabPage(browser, lab)
    failed = request.session.testsfailed
    try:
        yield page
    finally:
        if request.session.testsfailed > failed:
            page.screenshot(f"failed_{request.node.name}")
        page.close()

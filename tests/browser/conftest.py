"""Fixtures `lab`, `browser` and `page`; everything here is marked `browser` and skipped where there is no browser."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.harness import CHROMIUM_FLAGS, Lab, LabPage, running_lab

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


# Both live no longer than a module: playwright keeps an event loop running in this process, and tests elsewhere look
# at which processes are left.
@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A JupyterLab server with copies of the shipped notebooks in its folder."""
    if importlib.util.find_spec("jupyterlab") is None:
        pytest.skip("no jupyterlab: pip install 'shardviz[lab,test]'")
    with running_lab() as lab:
        for notebook in sorted((HERE.parents[1] / "notebooks").glob("*.ipynb")):
            lab.add(notebook)
        yield lab


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """A headless Chromium."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("no playwright: pip install 'shardviz[test]'")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium: install your system's (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=list(CHROMIUM_FLAGS))
        yield browser
        browser.close()


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

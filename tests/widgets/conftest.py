"""What the tests of the page get: a program that needs no JAX, a browser, and pages in it."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

from shardviz.session.explorer import ExplorerState
from shardviz.study import hunting
from shardviz.widgets.explorer import Explorer
from tests.session.fake_program import FakeProgram, a_plan, a_program, installed_compilers, programs  # noqa: F401 - fixtures
from tests.widgets.page import Page


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("no playwright: pip install 'shardviz[test]'")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium: install your system's (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    flags = [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--disable-quic",
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=flags)
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def nothing_helps_a_program_that_is_none(monkeypatch):
    """The compiler's answers to a `FakeProgram` are the test's, which does not count with jobs of the mender."""
    mend = hunting.mend
    monkeypatch.setattr(
        "shardviz.widgets.explorer.mend",
        lambda program, *rest: () if isinstance(program, FakeProgram) else mend(program, *rest),
    )


@pytest.fixture
def open_page(browser, tmp_path, program, plan):
    """Opens a page: on an explorer, or on one of `program`; `width`, `light`. It must end without an error."""
    pages = []

    def open_it(explorer=None, **options):
        explorer = explorer or Explorer(ExplorerState(program, plan, debounce=60))
        pages.append(Page(browser, tmp_path / "page.html", explorer, **options))
        return pages[-1]

    yield open_it
    for page in pages:
        errors = page.errors
        page.tab.close()
        assert not errors

"""What the tests of the page get: a program that needs no JAX, a browser, and pages in it."""

import pytest

from shardviz.explorer import background
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from tests.explorer.fake_program import FakeProgram, a_plan, a_program, installed_compilers, programs  # noqa: F401 - fixtures
from tests.page.page import Page


@pytest.fixture(scope="module")
def tab(browser):
    """A tab that goes from page to page: a new one takes the browser twice as long as the page in it."""
    return browser.new_page()


@pytest.fixture(autouse=True)
def nothing_helps_a_program_that_is_none(monkeypatch):
    """The compiler's answers to a `FakeProgram` are the test's, which does not count with jobs of the fixer."""
    fixes = background.fixes
    monkeypatch.setattr(
        "shardviz.explorer.background.fixes",
        lambda program, *rest: iter(()) if isinstance(program, FakeProgram) else fixes(program, *rest),
    )


@pytest.fixture
def open_page(tab, tmp_path, program, plan):
    """Opens a page: on an explorer, or on one of `program`; `width`, `light`. It must end without an error."""
    pages = []

    def open_it(explorer=None, **options):
        explorer = explorer or Explorer(ExplorerState(program, plan, debounce=60))
        pages.append(Page(tab, tmp_path / "page.html", explorer, **options))
        return pages[-1]

    yield open_it
    for page in pages:
        page.leave()

"""The harness itself: a cell that fails is told, and a kernel is the tests' own and ends with its page."""

from __future__ import annotations

import os
import sys

import pytest

from tests.browser.harness import Lab, LabPage

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect


def test_a_cell_that_raises_is_told_with_its_place(lab: Lab, page: LabPage):
    page.open_notebook(lab.write("raises.ipynb", "1 + 1", "1 / 0", "2 + 2"))
    with pytest.raises(AssertionError, match=r"^cell 1: ZeroDivisionError: division by zero$"):
        page.run_all()


def test_the_kernel_runs_the_interpreter_that_runs_the_tests_and_ends_with_its_page(lab: Lab, page: LabPage):
    page.open_notebook(lab.write("which.ipynb", "import sys; print(sys.executable)"))
    page.run_all()
    expect(page.cell_output(0)).to_have_text(os.path.abspath(sys.executable))
    assert len(lab.kernels()) == 1

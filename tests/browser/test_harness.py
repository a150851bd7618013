"""The harness itself: a tiny notebook with an anywidget is opened, run and clicked in a real browser."""

from __future__ import annotations

import os
import sys

import pytest

from tests.browser.harness import Lab, LabPage

expect = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'shardviz[test]'").expect

COUNTER = '''
import anywidget
import traitlets


class Counter(anywidget.AnyWidget):
    _esm = """
    function render({ model, el }) {
        const button = document.createElement("button");
        const show = () => { button.textContent = `count is ${model.get("count")}`; };
        button.onclick = () => { model.set("count", model.get("count") + 1); model.save_changes(); };
        model.on("change:count", show);
        show();
        el.append(button);
    }
    export default { render };
    """
    count = traitlets.Int(0).tag(sync=True)


counter = Counter()
counter
'''


def test_a_click_in_the_page_reaches_the_kernel_and_comes_back(lab: Lab, page: LabPage):
    name = lab.write("counter.ipynb", COUNTER, "counter.count += 10", "print('kernel has', counter.count)")
    page.open_notebook(name)
    page.run_all()
    button = page.cell_output(0).get_by_role("button")
    expect(button).to_have_text("count is 10")  # from the kernel to the page
    button.click()
    expect(button).to_have_text("count is 11")
    page.run_cell(2)
    expect(page.cell_output(2)).to_contain_text("kernel has 11")  # and from the page to the kernel
    picture = page.screenshot("harness")
    assert picture.stat().st_size > 10_000
    page.assert_no_errors()


def test_a_cell_that_raises_is_told_with_its_place(lab: Lab, page: LabPage):
    page.open_notebook(lab.write("raises.ipynb", "1 + 1", "1 / 0", "2 + 2"))
    with pytest.raises(AssertionError, match=r"^cell 1: ZeroDivisionError: division by zero$"):
        page.run_all()


def test_the_kernel_runs_the_interpreter_that_runs_the_tests_and_ends_with_its_page(lab: Lab, page: LabPage):
    page.open_notebook(lab.write("which.ipynb", "import sys; print(sys.executable)"))
    page.run_all()
    expect(page.cell_output(0)).to_have_text(os.path.abspath(sys.executable))
    assert len(lab.kernels()) == 1

"""Takes the README's two pictures: JupyterLab as `shardviz lab` opens it, and on the first lesson's explorer.

    python docs/first_light.py        # from the project's root, about half a minute

It needs Chromium and the extras `lab` and `test`, and writes `docs/first_screen.png` and `docs/first_light.png`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from shardviz.cli.lab import FIRST, shipped_notebooks
from tests.browser.harness import CHROMIUM_FLAGS, LabPage, running_lab
from tests.browser.views import state

HERE = Path(__file__).parent


def main() -> None:
    """Opens the first notebook; then runs the next up to its first explorer."""
    with running_lab() as lab, sync_playwright() as playwright:
        for notebook in shipped_notebooks().glob("*.ipynb"):
            lab.add(notebook)
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(CHROMIUM_FLAGS))
        page = LabPage(chromium, lab, width=1440, height=900)
        page.open_notebook(FIRST)
        page.raw.wait_for_timeout(2000)
        page.raw.screenshot(path=HERE / "first_screen.png")
        page.open_notebook("01_first_light.ipynb")
        page.run_all()
        explorer = page.notebook.locator(".jp-Cell-outputArea", has=page.raw.get_by_test_id("level")).first
        expect(state(explorer)).to_have_attribute("data-level", "partitioned", timeout=60_000)
        expect(explorer.get_by_text("what, and why").first).to_be_visible(timeout=120_000)
        explorer.evaluate("area => area.scrollIntoView({block: 'end'})")
        page.raw.wait_for_timeout(500)
        page.raw.screenshot(path=HERE / "first_light.png")
        page.close()
        chromium.close()


if __name__ == "__main__":
    main()

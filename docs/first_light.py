"""Takes the README's pictures: JupyterLab as `shardviz lab` opens it, and a drag in the first lesson's explorer.

    python docs/first_light.py        # from the project's root, about a minute

It needs Chromium and the extras `lab` and `test`, and writes `docs/first_screen.png` and `docs/first_light.webp`. The
second is an animation: a mesh axis is dragged onto a dimension, and the step, the memory and the collectives follow.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import shardviz as sv
from shardviz.cli.lab import FIRST, shipped_notebooks
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from tests.browser.harness import CHROMIUM_FLAGS, LabPage, running_lab
from tests.page.page import Page

HERE = Path(__file__).parent
LEVEL = "partitioned"
AXIS, DIMENSION = "model", "w1:2"
"""The mesh axis that is dragged, and the dimension onto which it is dropped: that of the feed-forward layers."""
WIDE = 1040
"""The width of the animation in pixels."""
TIMES = 4
"""How often it is shown, before it stands still."""

_POINTER = """() => {
  const style = document.createElement("style");
  style.textContent = `#pointer{position:fixed;z-index:99999;pointer-events:none}
    #pointer::before{content:"";position:absolute;width:20px;height:22px;background:#111;
      clip-path:polygon(0 0,0 82%,22% 64%,38% 100%,52% 94%,37% 58%,66% 58%)}
    #pointer.with::after{content:attr(data-axis);position:absolute;left:16px;top:14px;background:#D55E00;color:#111;
      font:bold 13px monospace;padding:2px 8px;border-radius:4px;opacity:.9}`;
  const arrow = document.createElement("div");
  arrow.id = "pointer";
  document.body.append(style, arrow);
}"""
"""Draws the mouse's pointer, which a screenshot does not have."""


class Film:
    """Screenshots of an explorer with a drawn pointer, each with the milliseconds for which it is shown."""

    def __init__(self, page: Any, clip: dict[str, float]):
        self.page, self.clip = page, clip
        self.frames: list[Image.Image] = []
        self.times: list[int] = []
        self.at = (clip["x"] + clip["width"] * 0.6, clip["y"] + clip["height"] * 0.7)
        page.evaluate(_POINTER)

    def shot(self, milliseconds: int) -> None:
        """Take a frame; one that equals the last makes the last longer."""
        self.page.evaluate("([x, y]) => { pointer.style.left = x + 'px'; pointer.style.top = y + 'px'; }", self.at)
        picture = Image.open(io.BytesIO(self.page.screenshot(clip=self.clip))).convert("RGB")
        picture = picture.resize((WIDE, round(picture.height * WIDE / picture.width)), Image.Resampling.LANCZOS)
        if self.frames and self.frames[-1].tobytes() == picture.tobytes():
            self.times[-1] += milliseconds
            return
        self.frames.append(picture)
        self.times.append(milliseconds)

    def go(self, box: dict[str, float], steps: int = 8) -> None:
        """Move the mouse and the drawn pointer to the middle of a box."""
        (x, y), to = self.at, (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        for n in range(1, steps + 1):
            part = n / steps * n / steps * (3 - 2 * n / steps)
            self.at = (x + (to[0] - x) * part, y + (to[1] - y) * part)
            self.page.mouse.move(*self.at)
            self.shot(60)

    def save(self, path: Path) -> None:
        """Write the animation."""
        first, *rest = self.frames
        options = {"duration": self.times, "loop": TIMES, "quality": 62, "method": 6, "minimize_size": True}
        first.save(path, save_all=True, append_images=rest, **options)


def film_a_drag(tab: Any, folder: Path) -> Film:
    """Take an axis off a dimension of the first lesson's plan; then drag it back, and wait for the answer."""
    example = sv.gallery.llama("70b")
    plan = example.plan.with_dimension(next(d for d in example.program.dimensions if d.name == DIMENSION), None)
    state = ExplorerState(example.program, plan, level=LEVEL, target="tpu v5p:4x4x4", debounce=0.01)
    state.wait(LEVEL, timeout=300)
    page = Page(tab, folder / "page.html", Explorer(state), width=1040)
    for _ in range(20):  # until what is found in the background is there
        page.answer()
        tab.wait_for_timeout(500)
    film = Film(tab, page.at("shardviz").bounding_box())
    film.shot(1800)
    film.go(page.at(f"mesh-axis-{AXIS}").locator(".sv-grip").bounding_box())
    tab.mouse.down()
    tab.evaluate("axis => { pointer.classList.add('with'); pointer.dataset.axis = axis; }", AXIS)
    film.go({"x": film.at[0], "y": film.at[1] + 24, "width": 0, "height": 0}, 3)  # now every dimension has its place
    film.go(page.at(f"dim-{DIMENSION}").bounding_box(), 12)
    film.shot(500)
    tab.mouse.up()  # a drag that goes by many small moves is not dropped in a headless browser; one by a single move is
    page.at(f"mesh-axis-{AXIS}").locator(".sv-grip").drag_to(page.at(f"dim-{DIMENSION}"))
    tab.evaluate("() => pointer.classList.remove('with')")
    film.shot(150)
    page.answer()
    film.shot(700)
    state.wait(LEVEL, timeout=300)
    for _ in range(6):
        page.answer()
        tab.wait_for_timeout(500)
    film.shot(2500)
    film.go({"x": film.clip["x"] + 190, "y": film.clip["y"] + 20, "width": 60, "height": 30})
    film.shot(3500)
    return film


def main() -> None:
    """Film a drag in the explorer of the first lesson; then open the first notebook as a newcomer does."""
    with running_lab() as lab, sync_playwright() as playwright, TemporaryDirectory() as folder:
        for notebook in shipped_notebooks().glob("*.ipynb"):
            lab.add(notebook)
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(CHROMIUM_FLAGS))
        film_a_drag(chromium.new_page(), Path(folder)).save(HERE / "first_light.webp")
        page = LabPage(chromium, lab, width=1440, height=900)
        page.open_notebook(FIRST)
        page.raw.wait_for_timeout(2000)
        page.raw.screenshot(path=HERE / "first_screen.png")
        page.close()
        chromium.close()


if __name__ == "__main__":
    main()

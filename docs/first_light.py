"""Takes the README's pictures: JupyterLab as `shardviz lab` opens it, and a drag in the first lesson's explorer.

    python docs/first_light.py        # from the project's root, about a minute

It needs Chromium and the extras `lab` and `test`, and writes `docs/first_screen.png` and `docs/first_light.webp`. The
second is an animation: a mesh axis is dragged onto a dimension, and the step, the memory and the collectives follow.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import expect, sync_playwright

from shardviz.cli.lab import FIRST, shipped_notebooks
from tests.browser.harness import CHROMIUM_FLAGS, LabPage, running_lab
from tests.browser.views import edits, settled, state

HERE = Path(__file__).parent
AXIS, DIMENSION = "model", "d_ff"
"""The axis that is dragged, and the dimension that it is taken from and dragged back to."""
WIDE = 1120
"""The width of the animation in pixels."""
TIMES = 4
"""How often it is shown, before it stands still."""

_POINTER = """() => {
  const arrow = document.createElement("div");
  arrow.id = "pointer";
  arrow.style = "position:fixed;z-index:99999;pointer-events:none;left:0;top:0;width:22px;height:22px;" +
    "background:#111;clip-path:polygon(0 0,0 82%,22% 64%,38% 100%,52% 94%,37% 58%,66% 58%);filter:drop-shadow(0 0 1px #fff)";
  document.body.append(arrow);
}"""


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


def film_a_drag(explorer: Any, page: Any) -> Film:
    """Take an axis off a dimension, then drag it back: first without, then with it."""
    box = explorer.get_by_test_id("level").locator("xpath=ancestor::*[contains(@class, 'jp-OutputArea-output')][1]")
    clip = box.bounding_box()
    slot = explorer.get_by_test_id(f"group-{DIMENSION}")
    film = Film(page, {name: clip[name] for name in ("x", "y", "width", "height")})
    film.shot(1500)
    del slot
    return film


def main() -> None:
    """Opens the first notebook; then runs the next up to its first explorer, and drags."""
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
        film_a_drag(explorer, page.raw).save(HERE / "first_light.webp")
        page.close()
        chromium.close()


if __name__ == "__main__":
    main()

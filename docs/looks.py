"""Takes pictures of the explorer in JupyterLab as it looks in the states that matter, to be looked at by a person.

    python docs/looks.py [FOLDER]        # from the project's root, some minutes; FOLDER is artifacts/looks

Each state is taken in a window of 1440 x 900 and one of 1280 x 800, light and dark. Two of the four, smaller, are kept
in docs/looks/ for the page docs/looks.md. It needs Chromium and the extras `lab` and `test`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from playwright.sync_api import Locator, expect, sync_playwright

from tests.browser.harness import ARTIFACTS, CHROMIUM_FLAGS, LabPage, running_lab
from tests.browser.views import go, state

SIZES = ((1440, 900), (1280, 800))
KEPT = {(1440, "light"), (1280, "dark")}
SMALL = Path(__file__).parent / "looks"
CHANGE = "(theme) => jupyterapp.commands.execute('apputils:change-theme', {theme})"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

SETUP = """import jax, jax.numpy as jnp, shardviz as sv
from jax.sharding import PartitionSpec as P
array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
def step(params, x):
    def loss(params):
        h = jnp.tanh(x @ params["up"])
        return jnp.sum((h @ params["down"]) ** 2)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))
params = {"up": array(32768, 131072), "down": array(131072, 32768)}
x = array(65536, 32768)
specs = {"up": P("model"), "down": P(None, "model")}
bad = dict(mesh="data=4,model=4", in_specs=(specs, P("data")), target="tpu v5e:4x4", level="partitioned")
many = {f"layer{n}": {"w": array(256, 256), "b": array(256)} for n in range(2500)}
def deep(params, x):
    for layer in params.values():
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x.sum()
show = lambda *args, level="partitioned", **more: sv.explore(*args, level=level, **more)"""

OWN = "explorer = show(step, params, x, mesh='data=16', target='tpu v5e:4x4')\nexplorer"
BAD = "explorer = show(step, params, x, **bad)\nexplorer"
MANY = """explorer = show(deep, many, array(1024, 256), mesh="data=4,model=2", target="tpu v5e:2x4", level="propagated")
explorer"""
LARGE = (
    "explorer = show(sv.gallery.llama('70b', batch=512, mesh='data=256,model=8'), target='tpu v5p:8x16x16')\nexplorer"
)
GPU = "explorer = show(step, params, x, mesh='data=4,model=4', target='gpu h100:2x8')\nexplorer"


def show_a_fix(view: Locator) -> None:
    """What costs most, with the first fix."""
    view.get_by_test_id("fix").click()
    fix = view.locator("[data-offer^='fix ']").first
    expect(fix).to_be_visible(timeout=120_000)
    view.evaluate("(output) => output.scrollIntoView()")


def compare(view: Locator) -> None:
    """Takes the first fix, and tells the difference to the plan before."""
    view.get_by_test_id("fix").click()
    view.locator("[data-offer^='fix ']").first.click(timeout=120_000)
    view.locator(".sv-card").nth(1).wait_for()
    go(view, "difference")


def search(view: Locator) -> None:
    """Starts the search for the best plan."""
    view.get_by_test_id("find-best").click()
    expect(view.get_by_test_id("find-best")).to_contain_text("stop", timeout=30_000)
    view.page.wait_for_timeout(3000)


LOOKS: dict[str, tuple[str, Callable[[Locator], object]]] = {
    "own": (OWN, lambda view: None),
    "bad": (BAD, lambda view: None),
    "fix": (BAD, show_a_fix),
    "compared": (BAD, compare),
    "many": (MANY, lambda view: view.get_by_test_id("open-inputs").click()),
    "large": (LARGE, lambda view: go(view, "machine")),
    "gpu": (GPU, lambda view: go(view, "memory")),
    "search": (BAD, search),
    "dead": (BAD, lambda view: None),
}


def main(folder: Path, names: list[str]) -> None:
    """Takes all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    SMALL.mkdir(exist_ok=True)
    with running_lab() as lab, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(CHROMIUM_FLAGS))
        for name in names or LOOKS:
            cell, act = LOOKS[name]
            page = LabPage(chromium, lab, width=SIZES[0][0], height=SIZES[0][1])
            page.open_notebook(lab.write(f"{name}.ipynb", SETUP, cell))
            page.run_all()
            view = page.cell_output(1)
            expect(state(view)).to_have_attribute("data-busy", "false", timeout=120_000)
            if name != "fix":
                act(view)
            if name == "dead":
                for kernel in lab.kernels():
                    kernel.kill()
                expect(view.get_by_test_id("gone")).to_be_visible(timeout=30_000)
                page.raw.wait_for_timeout(1500)
                page.raw.keyboard.press("Escape")  # JupyterLab says so too, in a dialog
            for width, height in SIZES:
                page.raw.set_viewport_size({"width": width, "height": height})
                for theme, title in THEMES.items():
                    page.raw.evaluate(CHANGE, title)
                    page.raw.wait_for_timeout(900)
                    view.evaluate("(output) => output.scrollIntoView()")
                    if name == "fix":
                        page.raw.mouse.move(5, 400)
                        act(view)
                    taken = folder / f"{name}_{width}_{theme}.png"
                    page.raw.screenshot(path=taken)
                    print(taken, flush=True)
                    if (width, theme) in KEPT:
                        small = Image.open(taken).resize((1000, 1000 * height // width), Image.Resampling.LANCZOS)
                        small.save(SMALL / f"{name}_{theme}.webp", quality=70, method=6)
            page.raw.evaluate(
                "(theme) => jupyterapp.commands.execute('apputils:change-theme', {theme})", THEMES["light"]
            )
            page.close()
        chromium.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ARTIFACTS / "looks", sys.argv[2:])

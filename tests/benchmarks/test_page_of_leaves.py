"""The page of a program of 5,000 arrays in a browser, and what an edit of a 70B step sends: reported, and bounded."""

from __future__ import annotations

import json
import statistics
import time

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import VIEWS, Explorer
from tests.benchmarks.test_leaves import program_of
from tests.page.page import Page, say

MOST_BYTES = 60_000

# Milliseconds from a call until the page is painted.
TIMED = """async (act) => {
  const start = performance.now();
  eval(act);
  const done = performance.now() - start;
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  return [done, performance.now() - start];
}"""
FRAMES = """async () => {
  const scroller = document.querySelector(".sv-left"), took = [];
  for (let i = 0; i < 40; i++) {
    scroller.scrollTop += 700;
    scroller.dispatchEvent(new Event("scroll"));
    const start = performance.now();
    await new Promise((resolve) => requestAnimationFrame(() => queueMicrotask(resolve)));
    took.push(performance.now() - start);
  }
  return took;
}"""


def sent_bytes(explorer, edit):
    """How many bytes of JSON an edit sends to the page."""
    changed = {}
    hear = lambda change: changed.__setitem__(change["name"], change["new"])  # noqa: E731
    explorer.observe(hear, list(VIEWS))
    start = time.process_time()
    say(explorer, **edit)
    took = time.process_time() - start
    explorer.unobserve(hear, list(VIEWS))
    assert explorer.status["error"] is None
    return {name: len(json.dumps(value)) for name, value in explorer.get_state(list(changed)).items()}, took


def test_an_edit_of_a_large_model_sends_little():
    example = sv.gallery.llama("70b")
    plan = sv.Plan(example.mesh, example.in_specs, example.out_specs)
    explorer = Explorer(ExplorerState(example.program, plan, level="propagated"))
    edit = {"op": "set_dim", "name": "params['layers']['wq']", "dimension": 2, "axes": [], "twins": True}
    sent, took = sent_bytes(explorer, edit)
    print(f"70B: {sum(sent.values())} bytes; {took:.2f} s (CPU): {sent}")
    assert sum(sent.values()) <= MOST_BYTES and not {"inputs", "outputs"} & set(sent)


def test_a_page_of_5000_leaves(browser, tmp_path):
    explorer = Explorer(ExplorerState(program_of(5000), sv.Plan("data=4,model=2"), level="propagated"))
    edit = {"op": "set_dim", "name": "params['layers'][0]['w2']", "dimension": 0, "axes": ["data"]}
    sent, took = sent_bytes(explorer, edit)
    print(f"5,000 leaves: an edit {took:.2f} s (CPU), {sent}")
    assert sum(sent.values()) <= MOST_BYTES
    start = time.perf_counter()
    page = Page(browser.new_page(), tmp_path / "page.html", explorer)
    page.at("open-inputs").click()
    page.tab.locator(".sv-leaf, .sv-branch").first.wait_for()
    first = time.perf_counter() - start
    page.at("filter").select_option("largest")
    rows = page.tab.locator(".sv-rows > .sv-row").count()
    find = "const s = document.querySelector('[data-testid=search]'); s.value = '{}'; "
    find += "s.dispatchEvent(new Event('input'))"
    searches = [page.tab.evaluate(TIMED, find.format(text))[0] for text in ("w2", "momentum [17] w", "w9", "")]
    page.at("filter").select_option("")
    page.tab.evaluate("document.querySelector('[data-testid$=each]')?.click()")
    frames = page.tab.evaluate(FRAMES)
    page.tab.evaluate("document.querySelector('.sv-left').scrollTop = 0")
    slot = page.tab.locator(".sv-specs .sv-slot").first
    slot.click()
    drops = page.tab.evaluate(TIMED, "document.querySelector('[data-testid=menu-axis-model]').click()")
    print(
        f"first paint {first:.2f} s; {rows} rows are there; search {[f'{t:.0f}' for t in searches]} ms; "
        f"a scrolled frame {statistics.median(frames):.1f} ms, at most {max(frames):.1f}; "
        f"a drop painted after {drops[1]:.0f} ms"
    )
    assert not page.errors and 0 < rows < 120

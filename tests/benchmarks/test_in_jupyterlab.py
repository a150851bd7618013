"""What a person waits for in a real JupyterLab: from a drop, a click or a key until the browser has painted it.

Each time is taken in the page, from the event to the frame that shows what came of it. The bounds are for a machine on
which Shardy's own pipeline takes 34 ms on the 70B step; on one on which it takes longer in the same kernel, and so does
all else, they are as much longer. An edit of 5,000 arrays is measured against Shardy's pipeline on those.
"""

from __future__ import annotations

import json
import os
import statistics

import pytest

from tests.browser.conftest import lab  # noqa: F401 - a fixture
from tests.browser.harness import LabPage

pytestmark = pytest.mark.browser

MOST_BYTES = 72_000  # from the kernel to the page for one edit
PACE = 34  # milliseconds of Shardy's own pipeline on the 70B step, where the bounds were set
DROPS = 12

# Milliseconds, of the median.
BOUNDS = {
    "a drop is shown": 50,
    "propagated everywhere": 250,
    "partitioned everywhere": 800,
    "undo": 250,
    "redo": 250,
    "another card": 250,
    "first paint of a 70B step": 1500,
    "first paint of 5,000 arrays": 3000,
    "a search among 5,000": 50,
    "a frame while 5,000 are scrolled": 18,  # one of 60 in a second, as well as it can be measured
}
MOST_OF_MANY = 2.5  # times Shardy's pipeline on 5,000 arrays, for an edit of one of them

# Promises of the times, in milliseconds after an action, at which the page has painted what it brought.
TIMES = """
window.painted = () => new Promise((resolve) => requestAnimationFrame(() => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => resolve(performance.now());
  port2.postMessage(0);
}));
window.seen = (root, found) => new Promise((resolve) => {
  const watch = new MutationObserver(look);
  const end = setTimeout(() => { watch.disconnect(); resolve(null); }, 60000);
  function look() {
    if (!found()) return;
    watch.disconnect();
    clearTimeout(end);
    painted().then(resolve);
  }
  watch.observe(root, { subtree: true, childList: true, attributes: true, characterData: true });
  look();
});
window.view = () => [...document.querySelectorAll(".shardviz")].at(-1);
window.at = (id) => view().querySelector(`[data-testid="${CSS.escape(id)}"]`);
window.level = () => view().querySelector("[data-testid=level] [data-seq]").dataset;
window.dimensions_found = () => {
  const box = view().querySelector(".sv-dimbox");
  return !at("dimensions-state") && (box.hidden || box.querySelector(".sv-dimensions").children.length > 0);
};
window.answered = async (act, shown) => {
  const root = view();
  const before = Number(level().seq);
  const start = performance.now();
  act();
  const all = [
    shown ? seen(root, shown) : painted(),
    seen(root, () => Number(level().seq) > before),
    seen(root, () => {
      const { seq, level: now, busy } = level();
      return Number(seq) > before && now === (window.reach ?? "partitioned") && busy === "false";
    }),
  ];
  return (await Promise.all(all)).map((time) => time === null ? null : time - start);
};
window.drop = async (turn) => {
  for (const what of ["inputs", "outputs"]) {
    if (at(`open-${what}`).getAttribute("aria-expanded") === "false") at(`open-${what}`).click();
  }
  const handles = ["model", "data"].map((axis) => at(`mesh-axis-${axis}`).querySelector(".sv-grip"));
  const handle = handles[turn % 2];
  const fire = (element, type) => element.dispatchEvent(
    new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer: new DataTransfer() }));
  fire(handle, "dragstart");
  const axis = ["model", "data"][turn % 2];
  const slots = () => [...view().querySelectorAll(".sv-specs .sv-slot.sv-may")].filter((slot) =>
    ![...slot.querySelectorAll(".sv-chip")].some((chip) => chip.textContent === axis));
  let free = slots();
  for (let frame = 0; !free.length && frame < 300; frame++) {  // what was opened above, and where it may be dropped
    await new Promise(requestAnimationFrame);
    free = slots();
  }
  const slot = free[(turn * 7) % free.length];
  const id = slot.dataset.testid;
  fire(slot, "dragover");
  const has = () => [...(at(id)?.querySelectorAll(".sv-chip") ?? [])].some((chip) => chip.textContent === axis);
  const times = await answered(() => fire(slot, "drop"), has);
  fire(handle, "dragend");
  return times;
};
null;  // what a script ends with is called where it is a function
"""

OPEN = """import shardviz as sv
llama = sv.gallery.llama("70b")
explorer = sv.explore(llama, target="tpu v5p:4x4x4", level="partitioned")
explorer"""

# 5,000 arrays.
LEAVES = """leaves = sv.explore(many, plan=many_plan, level="propagated")
leaves"""

# The same step's time in Shardy's own pipeline, verified after each pass, and in XLA's partitioner, in this kernel.
RAW = """import json, statistics, time
from jax.extend.mlir import ir
from jax.extend.mlir.passmanager import PassManager
from shardviz.propagate.lower import edited
from jax.sharding import PartitionSpec as P
from tests.benchmarks.test_leaves import program_of
program, plan = llama.program, llama.plan
many, many_plan = program_of(5000), sv.Plan("data=4,model=2")
def pipeline(program, plan):
    lowered, bound = program._lowerings.lower(plan), program.bind(plan)
    lowered.rehearsed = True
    def raw():
        with lowered.module.context, ir.Location.unknown():
            PassManager.parse("builtin.module(sdy-propagation-pipeline)").run(edited(lowered, bound))
    return raw
raw, raw_many = pipeline(program, plan), pipeline(many, many_plan)
def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
specs = [P(None, "data", "model"), P(None, None, "model")]
partition = lambda n: program.partition(plan.with_spec("params['layers']['wk']", specs[n % 2]))
partition(0)
turns = iter(range(9))
median = lambda run, rounds: 1e3 * statistics.median(seconds(run) for _ in range(rounds))
print(json.dumps([median(raw, 5), median(lambda: partition(next(turns)), 3)]))"""

# Shardy's pipeline on 5,000 arrays.
RAW_MANY = "print(median(raw_many, 2))"


FIRST = """async (index) => {
  const panel = jupyterapp.shell.currentWidget;
  panel.content.activeCellIndex = index;
  const output = panel.content.widgets[index].node;
  const start = performance.now();
  jupyterapp.commands.execute("notebook:run-cell");
  const end = await seen(output, () => output.querySelector(".shardviz .sv-card .sv-cardstep"));
  return end - start;
}"""

SEARCH = """async (text) => {
  const search = at("search");
  const start = performance.now();
  search.value = text;
  search.dispatchEvent(new Event("input"));
  return (await painted()) - start;
}"""
SCROLL = """async () => {
  at("filter").value = "largest";
  at("filter").dispatchEvent(new Event("change"));
  const scroller = view().querySelector(".sv-left");
  const took = [];
  for (let i = 0; i < 30; i++) {
    await new Promise((resolve) => requestAnimationFrame(resolve));
    const start = performance.now();
    scroller.scrollTop += 500;
    await painted();
    took.push(performance.now() - start);
  }
  at("filter").value = "";
  at("filter").dispatchEvent(new Event("change"));
  scroller.scrollTop = 0;
  return took;
}"""


class Sizes:
    """How many bytes the kernel has said to the page, but for the still that a notebook is saved with."""

    def __init__(self, page: LabPage):
        self.frames: list[bytes] = []
        page.raw.on("websocket", lambda socket: socket.on("framereceived", self._take))

    def _take(self, data):
        self.frames.append(data if isinstance(data, bytes) else data.encode())

    def taken(self):
        """The bytes of each message since the last time but for stills, and those of all stills."""
        frames, self.frames = self.frames, []
        stills = [len(frame) for frame in frames if b"update_display_data" in frame]
        return [len(frame) for frame in frames if b"update_display_data" not in frame], sum(stills)


def told(name, times, pace):
    """Says the middle and the 95th percentile of times, beside the bound; whether the middle holds at this pace."""
    times = sorted(times)
    median, high = statistics.median(times), times[min(len(times) - 1, round(0.95 * len(times)))]
    bound = BOUNDS[name]
    print(f"{name}: median {median:.0f} ms, 95 % {high:.0f} ms, bound {bound} ms;", end=" ")
    print(f"at the bounds' pace {median / pace:.0f}")
    return median <= bound * pace


@pytest.fixture(scope="module")
def opened(browser, lab):  # noqa: F811
    """A page of a notebook with an explorer, how much it was sent, how many times the bounds' time all takes here."""
    page = LabPage(browser, lab)
    sizes = Sizes(page)
    page.open_notebook(lab.write("measured.ipynb", OPEN, RAW, OPEN, LEAVES, RAW_MANY))
    page.run_cell(0)
    page.raw.evaluate(TIMES)
    page.raw.wait_for_function("level().busy === 'false'")
    page.run_cell(1)
    shardy, partitioner = json.loads(page.cell_output(1).inner_text())
    pace = max(1.0, shardy / PACE)
    print(f"\nin the same kernel: Shardy's pipeline {shardy:.0f} ms, so {pace:.1f} x the bounds' time; ", end="")
    print(f"XLA's partitioner {partitioner:.0f} ms; ", end="")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    yield page, sizes, pace
    page.close()


def test_a_drop_a_card_and_an_undo(opened):
    page, sizes, pace = opened
    drops, sent = [], []
    for turn in range(DROPS):
        page.raw.wait_for_timeout(50)
        sizes.taken()
        drops.append(page.raw.evaluate("(turn) => drop(turn)", turn))
        sent.append(sizes.taken())
    assert all(None not in times for times in drops)
    names = ("a drop is shown", "propagated everywhere", "partitioned everywhere")
    holds = [told(name, times, pace) for name, times in zip(names, zip(*drops, strict=True), strict=True)]
    click = "(name) => answered(() => at(name).click())"
    for name, clicks in (
        ("undo", ["undo"] * 5),
        ("redo", ["redo"] * 5),
        ("another card", ["card-baseline", "card-draft"] * 3),
    ):
        _, shown, _ = zip(*(page.raw.evaluate(click, each) for each in clicks), strict=True)
        holds.append(told(name, shown, pace))
    answers = [max(each, default=0) for each, _ in sent]
    print(f"the largest answer to an edit {max(answers) / 1e3:.0f} kB, ", end="")
    print(f"all that is said of one {max(sum(each) for each, _ in sent) / 1e3:.0f} kB; ", end="")
    print(f"a still {max(still for _, still in sent) / 1e3:.0f} kB")
    assert max(answers) <= MOST_BYTES
    assert all(holds)


def test_the_first_paint(opened):
    page, _, pace = opened
    times = []
    for _ in range(3):
        page.raw.wait_for_function("level().busy === 'false'")
        times.append(page.raw.evaluate(FIRST, 2))
    assert told("first paint of a 70B step", times, pace)


def test_a_tree_of_5000_arrays(opened):
    page, sizes, pace = opened
    holds = [told("first paint of 5,000 arrays", [page.raw.evaluate(FIRST, 3)], pace)]
    page.raw.evaluate("window.reach = 'propagated'")
    page.raw.wait_for_function("level().busy === 'false' && dimensions_found()", timeout=120_000)
    searches = [page.raw.evaluate(SEARCH, text) for text in ("w2", "momentum [17] w", "w9", "")]
    frames = page.raw.evaluate(SCROLL)
    sizes.taken()
    page.run_cell(4)
    raw = [float(page.cell_output(4).inner_text())]
    drops = [page.raw.evaluate("(turn) => drop(turn)", turn)[:2] for turn in range(3)]  # before fixes are tried
    answers, _ = sizes.taken()
    page.run_cell(4)
    raw.append(float(page.cell_output(4).inner_text()))
    assert all(None not in times for times in drops)
    shown, propagated = zip(*drops, strict=True)
    holds += [
        told("a search among 5,000", searches, pace),
        told("a frame while 5,000 are scrolled", frames, pace),
        told("a drop is shown", shown, pace),
    ]
    ratio = statistics.median(propagated) / min(raw)
    edits, shardy = (", ".join(f"{each:.0f}" for each in times) for times in (propagated, raw))
    print(f"5,000 arrays propagated everywhere: {ratio:.2f} x Shardy's pipeline ({edits} by {shardy} ms)")
    print(f"the largest answer to an edit {max(answers) / 1e3:.0f} kB")
    assert max(answers) <= MOST_BYTES
    assert ratio <= MOST_OF_MANY
    assert all(holds)

"""The page's code comes from the kernel: with the model, or when it is asked for; a notebook's saved state has none."""

from __future__ import annotations

import base64
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import IPython
import pytest

from shardviz.display import is_watched
from shardviz.explorer.explorer import ExplorerState
from shardviz.page import bundle
from shardviz.page.explorer import VIEWS, Explorer
from tests.page.page import MODEL, TRAITS

PAGE = (
    """<!doctype html><meta charset="utf-8"><style>.sv-tabs {{ display: none }}</style>
<body data-jp-theme-light="true"><div id="app"></div><div id="other"></div><script type="module">
"""
    + MODEL
    + """const code = new Blob([decoded("{start}")], {{ type: "text/javascript" }});
const {{ default: widget }} = await import(URL.createObjectURL(code));
window.ends = {{}};
window.shown = (id, el) => {{ ends[id] = widget.render({{ model, el }}); }};
window.show = (id) => shown(id, document.getElementById(id));
window.shade = Object.assign(document.createElement("div"), {{ id: "shade" }});
const page = data._page;
show("app");
window.kept = [];
window.rerun = async (n) => {{
  const own = {{ comm_id: `run ${{n}}`, _page: page }};
  const url = URL.createObjectURL(code);
  const {{ default: again }} = await import(url);
  URL.revokeObjectURL(url);
  const el = document.createElement("div");
  document.body.append(el);
  const end = await again.render({{ model: {{ ...model, get: (key) => own[key] ?? data[key], set() {{}} }}, el }});
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 50)));
  end();
  el.remove();
  kept.push(el, end);
}};
window.ready = true;
</script>"""
)


@pytest.fixture
def opened(tab, tmp_path, program, plan):
    """Opens a page that anywidget starts, with a `_page` in its model."""

    def open_it(page: str):
        explorer = Explorer(ExplorerState(program, plan, debounce=60))
        data = json.dumps({name: getattr(explorer, name) for name in TRAITS} | {"_page": page})
        encode = lambda s: base64.b64encode(s.encode()).decode()
        path = tmp_path / "page.html"
        path.write_text(PAGE.format(data=encode(data), start=encode(bundle.start())))
        tab.set_default_timeout(8000)
        tab.goto(path.as_uri())
        tab.wait_for_function("window.ready")
        return tab

    return open_it


def test_the_code_that_comes_with_the_model_is_taken_out_of_it(opened):
    tab = opened(bundle.page())
    tab.get_by_test_id("tab-source").wait_for()  # whatever style sheet another version has left in the page
    assert tab.evaluate("model.get('_page')") == "" and tab.evaluate("sent") == [{"seen": True}]
    tab.evaluate("show('other')")
    tab.locator("#other").get_by_test_id("tab-source").wait_for()
    assert not [said for said in tab.evaluate("sent") if "ask" in said], "a second view has the code already"
    assert tab.evaluate("document.adoptedStyleSheets.length") == 1, "and the style sheet"
    tab.evaluate("ends.app.then((end) => end())")
    tab.evaluate("document.getElementById('app').remove()")
    assert tab.locator("#other").get_by_test_id("tab-source").is_visible(), "which stays as long as a view needs it"
    tab.evaluate("ends.other.then((end) => end())")
    assert tab.evaluate("document.adoptedStyleSheets.length") == 0


def test_a_view_in_a_shadow_root_has_its_style_sheet(opened):
    tab = opened(bundle.page())
    tab.get_by_test_id("tab-source").wait_for()
    tab.evaluate("document.getElementById('other').attachShadow({ mode: 'open' }).append(shade)")
    tab.evaluate("shown('shade', shade)")
    tab.locator("#shade").get_by_test_id("tab-source").wait_for()
    grid = "getComputedStyle(shade.querySelector('.sv-body')).display"
    assert tab.evaluate(f"new Promise((done) => requestAnimationFrame(() => done({grid})))") == "grid"


def test_a_cell_that_is_run_again_leaves_nothing_of_the_view_before(opened):
    """Each run has an explorer and a module of its own. A host keeps a closed view's element, and what closed it, as
    JupyterLab does as long as the kernel keeps the explorer."""
    tab = opened(bundle.page())
    tab.get_by_test_id("tab-source").wait_for()
    cdp = tab.context.new_cdp_session(tab)

    def counted():
        for _ in range(3):
            cdp.send("HeapProfiler.collectGarbage")
            tab.wait_for_timeout(30)
        found = cdp.send("Memory.getDOMCounters")
        return found["nodes"], found["jsEventListeners"], cdp.send("Runtime.getHeapUsage")["usedSize"]

    for n in range(2):
        tab.evaluate("rerun", n)
    before = counted()
    for n in range(2, 12):
        tab.evaluate("rerun", n)
    nodes, listeners, size = ((now - then) / 10 for now, then in zip(counted(), before, strict=True))
    print(f"each run keeps {nodes:.0f} nodes, {listeners:.0f} listeners, {size / 1e3:.0f} kB")
    assert nodes < 10 and listeners < 3 and size < 100_000


def test_a_page_whose_model_was_restored_asks(opened):
    tab = opened("")
    assert tab.evaluate("sent") == [{"ask": "page"}]
    tab.evaluate("[{ other: 1 }, undefined].forEach((each) => model.trigger('msg:custom', each))")
    tab.get_by_text("waits for its kernel").wait_for()
    assert tab.evaluate("window.waiting = listeners['msg:custom']; waiting.length") == 1
    tab.evaluate("(page) => model.trigger('msg:custom', { page })", bundle.page())
    tab.get_by_test_id("tab-source").wait_for()
    assert tab.get_by_text("waits for its kernel").count() == 0
    assert not tab.evaluate("listeners['msg:custom'].some((own) => waiting.includes(own))"), "it hears no more"


def test_the_state_has_the_code_only_where_somebody_looks_on(program, plan, monkeypatch):
    explorer = Explorer(ExplorerState(program, plan, debounce=60))
    assert explorer.get_state()["_page"] == bundle.page(), "a page that comes later asks for all"
    assert explorer._page == "" and explorer.get_state("_page") == {"_page": ""}
    assert len(json.dumps(explorer.get_state([name for name in explorer.keys if name != "_page"]))) < 60_000
    sent = []
    monkeypatch.setattr(explorer, "send", sent.append)
    for message in ({"ask": "page"}, {"ask": "all"}, None, "page", {"page": "evil"}):
        explorer._on_message(explorer, message, [])
    assert sent == [{"page": bundle.page()}]
    error = explorer.status["error"]
    explorer.set_state({"_page": ""})
    assert explorer.status["error"] == error
    explorer.set_state({"_page": "evil"})
    assert explorer._page == "" and "does not fit" in explorer.status["error"]["message"]


def test_nobody_looks_on_where_there_is_no_kernel_and_somebody_always_on_colab(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    assert not is_watched()
    asked = SimpleNamespace(get_parent=lambda channel: {"metadata": {}})
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=asked))
    assert is_watched()
    monkeypatch.delitem(sys.modules, "google.colab")
    assert not is_watched()


def test_a_notebook_that_nobody_looks_at_saves_no_content(program, plan, monkeypatch):
    """nbconvert saves each trait that is sent. No page could show them there, because the code is not saved."""
    monkeypatch.setattr("shardviz.page.delivered.shell", object)
    sent: list[Any] = []
    comm = SimpleNamespace(comm_id="1", kernel=True, on_msg=id, send=lambda data, buffers=None: sent.append(data))
    monkeypatch.setattr("comm.create_comm", lambda **opened: (sent.append(opened["data"]), comm)[1])
    explorer = Explorer(ExplorerState(program, plan, debounce=60))
    explorer.state.undo()
    (state,) = (opened["state"] for opened in sent if "_esm" in opened["state"])
    assert not any(state[name] for name in VIEWS) and not state["_page"]
    assert not any(message.get("method") == "update" for message in sent)
    explorer._on_message(explorer, {"ask": "page"}, [])  # a page that is shown after all
    state, page = sent[-2:]
    assert state["state"]["shardings"] == explorer.shardings and page["content"] == {"page": bundle.page()}

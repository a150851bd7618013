"""What an explorer leaves: a still in the notebook, and files of all that its panes say."""

import asyncio
from types import SimpleNamespace

import IPython
import pytest

import shardviz as sv
from shardviz.errors import ShardvizError
from shardviz.explorer.explorer import ExplorerState
from shardviz.page import stills
from shardviz.page.explorer import Explorer
from shardviz.page.stills import VIEW, found_by, still_html
from shardviz.paint.html import html_of
from shardviz.records.amounts import format_seconds
from shardviz.view.explored import explored, still
from tests.view.sanitizer import read

TARGET = "tpu v5p:4x4x4"


@pytest.fixture(scope="module")
def llama():
    """The explorer of a 70B train step on 64 chips; nothing is compiled."""
    return sv.explore(sv.gallery.llama("70b"), target=TARGET, level="propagated")


class Kernel:
    """Stands for IPython in a kernel: keeps what is put out, and runs what is registered for the end of a cell."""

    def __init__(self, monkeypatch, metadata):
        self.outputs, self.after_cell, self.updates = [], [], 0
        self.kernel = SimpleNamespace(get_parent=lambda _: {"metadata": metadata})
        self.events = SimpleNamespace(register=lambda _, function: self.after_cell.append(function))
        monkeypatch.setattr(IPython, "get_ipython", lambda: self)
        monkeypatch.setattr("IPython.display.display", self.display)

    def display(self, data, raw, display_id=False):
        assert raw
        place = len(self.outputs)
        self.outputs.append(data)

        def update(data, raw):
            self.outputs[place], self.updates = data, self.updates + 1

        return SimpleNamespace(update=update)


def test_a_still_is_short_and_every_sanitizer_keeps_it(llama):
    html = html_of(still(llama.state.now))
    assert len(html) < 40_000
    said = " ".join("".join(read(html).text).split())
    for text in ("train_step", "propagated", TARGET, "params['layers']['wq']", "communication", "baseline"):
        assert text in said
    assert found_by(still_html(llama.state), "abc", 3).startswith(
        '<div data-shardviz-still="abc" data-shardviz-at="3"><style>'
    )


def test_a_saved_explorer_has_all_panes_and_is_small(llama, tmp_path):
    page = llama.save(tmp_path / "explorer.html").read_text()
    assert 100_000 < len(page) < 2_000_000 and "<script" not in page
    titles = ("Findings", "Source", "Arguments", "Collectives", "Memory", "Cost", "Timeline", "Machine", "Shard map")
    for title in (*titles, "Values"):
        assert f"<b>{title}</b>" in page, title
    assert f'aria-label="Lanes of a step of {format_seconds(llama.state.cost.step.seconds)}: compute busy' in page
    assert llama.code().splitlines()[0] in page and "jax.nn.silu" in page and "step = jax.jit(" in page
    assert page.count("<svg") >= 4
    assert "why?" not in page, "nobody would answer"
    assert "What costs you most" in page and "try this" not in page, "nothing was tried"
    assert "in_specs=" in llama.save(tmp_path / "explorer.md").read_text()
    assert "wq" in llama.save(tmp_path / "explorer.txt").read_text()
    with pytest.raises(ShardvizError, match="not a supported kind of file"):
        llama.save(tmp_path / "explorer.docx")


def test_code_is_for_jax_alone_too_with_where_to_write_constraints(tmp_path):
    explorer = sv.explore(sv.gallery.mlp(), level="propagated")
    assert explorer.codes == {}
    explorer.tab = "code"
    assert explorer.codes == {"jax": explorer.program.code(explorer.plan), "why": ""}
    assert "jax.jit(" in explorer.codes["jax"] and explorer.plan_code == explorer.code()
    assert explorer.state.constrain("x", "P('data')")
    assert "# Constrain inside your function:" in explorer.codes["jax"]
    assert "with_sharding_constraint" in explorer.save(tmp_path / "x.md").read_text()
    assert explorer.state.set_dim("x", 0, [("model", 1, 2)])  # which no PartitionSpec says
    assert not explorer.codes["jax"] and "model" in explorer.codes["why"]
    assert "There is no code for JAX alone" in explorer.save(tmp_path / "x.html").read_text()


def test_source_keeps_its_indent(llama):
    assert "&nbsp;&nbsp;&nbsp;&nbsp;" in html_of(explored(llama.state.now))


def test_without_a_machine_all_is_said_too(program, plan, tmp_path):
    explorer = Explorer(ExplorerState(program, plan, debounce=60))
    page = explorer.save(tmp_path / "explorer.html").read_text()
    assert "<b>Cost</b>" in page and "<b>Machine</b>" not in page
    with pytest.raises(ShardvizError, match="cannot draw a Report"):
        explorer.save(tmp_path / "step.svg")


def test_the_explorer_and_its_still_are_two_outputs(program, plan, monkeypatch):
    """Where nobody looks on, the still is brought up to date at the end of each cell, if there is anything new."""
    kernel = Kernel(monkeypatch, {})
    explorer = Explorer(ExplorerState(program, plan, debounce=60))
    assert explorer.asked("still") is None
    explorer._ipython_display_()
    view, first = kernel.outputs
    assert view == {VIEW: {"version_major": 2, "version_minor": 0, "model_id": explorer.model_id}}
    assert first["text/plain"] == explorer.summary() and f'still="{explorer.model_id}"' in first["text/html"]
    (after_cell,) = kernel.after_cell
    after_cell(None)
    assert kernel.updates == 0
    name = explorer.report.arguments[0].name
    assert explorer.state.set_spec(name, None)
    assert kernel.updates == 0
    assert explorer.stilled == 0
    after_cell(None)
    assert kernel.updates == 1 and kernel.outputs[1]["text/plain"] == explorer.summary() != first["text/plain"]
    assert explorer.stilled == 1 and 'data-shardviz-at="1"' in kernel.outputs[1]["text/html"]
    assert explorer.asked("still") == {"still": {"number": 1, "data": kernel.outputs[1]}}
    explorer._ipython_display_()
    assert len(kernel.outputs) == 4 and len(kernel.after_cell) == 1
    explorer.state.undo()
    after_cell(None)
    assert kernel.outputs[1] == kernel.outputs[3] and kernel.outputs[1]["text/plain"] == explorer.summary()
    explorer.state.redo()
    explorer._ipython_display_()  # shown once more before anything is brought up to date: all are
    assert kernel.outputs[1] == kernel.outputs[3] == kernel.outputs[5] and explorer.stilled == 3


def test_with_a_page_the_still_waits_for_a_rest(program, plan, monkeypatch):
    kernel = Kernel(monkeypatch, {"cellId": "1"})
    monkeypatch.setattr(stills, "REST", 0.2)
    explorer = Explorer(ExplorerState(program, plan, debounce=60))
    name = explorer.report.arguments[0].name

    async def work():
        explorer._ipython_display_()
        for _ in range(3):
            assert explorer.state.set_spec(name, None) and explorer.state.undo()
            await asyncio.sleep(0.05)
        assert explorer.state.set_spec(name, None)
        assert kernel.updates == 0
        await asyncio.sleep(0.5)

    asyncio.run(work())
    assert not kernel.after_cell
    assert kernel.updates == 1 and kernel.outputs[1]["text/plain"] == explorer.summary()
    explorer.state.undo()  # the loop is closed: the kernel ends


def test_without_a_kernel_there_is_one_output_of_text(program, plan, monkeypatch):
    found = []
    monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    monkeypatch.setattr("IPython.display.display", lambda data, raw: found.append(data))
    explorer = Explorer(ExplorerState(program, plan, debounce=60))
    explorer._ipython_display_()
    assert [set(each) for each in found] == [{"text/plain", "text/html"}]
    assert set(explorer._repr_mimebundle_()) == {"text/plain", "text/html", VIEW}
    assert set(explorer._repr_mimebundle_(include=["text/plain"])) == {"text/plain"}

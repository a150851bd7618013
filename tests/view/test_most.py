"""What costs you most: ranked by what the step would lose; what has a fix stands first."""

import dataclasses

import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.costs.spending import spendings
from shardviz.diagnose.findings import brief
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.snapshot import TriedFixes
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.study.fixes import Fix, Fixes
from shardviz.view.document import Table, plain
from shardviz.view.most import costs_documents
from tests.diagnose.faulty_programs import FAULTS, LARGE


@pytest.fixture(scope="module")
def state():
    example = sv.gallery.mlp(mesh="data=4,model=2")
    return ExplorerState(example.program, example.plan, level="propagated", target="tpu v5e:2x4", debounce=60)


def fix(state, action, finding=None, kept=lambda collective: True):
    """A fix after which these collectives are left."""
    report = state.report
    after = dataclasses.replace(report, collectives=tuple(c for c in report.collectives if kept(c)))
    difference = sv.compare(report, after)
    about = {"level": "propagated", "seconds": 1e-5, "step": 1e-3, "bytes": 1e6, "memory": 0.0}
    findings = () if finding is None else (finding,)
    return Fix(findings=findings, plan=state.plan, action=action, difference=difference, **about)


def tried_fixes(state, *fixes):
    """What was tried."""
    many = {"tried": len(fixes), "candidates": len(fixes)}
    return TriedFixes(of=state.plan, fixes=Fixes(program="", target="", level="propagated", fixes=fixes, **many))


def tables(state, *fixes):
    """The rows in words."""
    (table,) = (b for b in costs_documents(state.deck, tried_fixes(state, *fixes))[0].blocks if isinstance(b, Table))
    return [" ".join(map(plain, row.cells)) for row in table.rows]


def test_rows_say_what_the_step_would_lose_and_what_is_hidden(state):
    cost, rows = state.cost, tables(state)
    spent = [s for s in spendings(cost) if s.loss is not None]
    assert any(s.loss.hidden > 0.01 * s.loss.busy for s in spent)
    for each in spent[:5]:
        start = format_seconds(each.weight)
        (row,) = [row for row in rows if row.startswith(f"{start} ") and (each.kind or "matrix products") in row]
        part = f"{format_seconds(each.loss.hidden)} of it" if each.loss.hidden > 0.01 * each.loss.busy else "none"
        assert f"{format_seconds(each.loss.busy)} on the " in row and f", {part} hidden: " in row
        assert f"{each.loss.lost / cost.seconds:.0%} of the step" in row


def test_compared_with_another_plan_rows_stay_and_the_difference_is_a_column(state):
    """Sharded by its batch alone: the products, which take about as long as before, are not behind what changed."""
    example = sv.gallery.mlp(mesh="data=4,model=2", batch=65_536)
    batch = example.program.presets(example.plan.mesh)["data parallel"]
    state, alone = (
        ExplorerState(example.program, plan, level="propagated", target="tpu v5e:2x4", debounce=60)
        for plan in (example.plan, batch)
    )
    assert state.set_plan(batch)
    compared, single = (
        next(b for b in costs_documents(s.deck, s.now.tried_fixes)[0].blocks if isinstance(b, Table))
        for s in (state, alone)
    )
    assert [c.title for c in compared.columns if c not in single.columns] == ["difference"]
    costs = lambda table: [plain(row.cells[0]) for row in table.rows if "removed" not in str(row.cells)]
    assert costs(compared) == costs(single)
    what, difference = ([c.title for c in compared.columns].index(t) for t in ("what, and why", "difference"))
    assert any("matrix products" in plain(row.cells[what]) for row in compared.rows[:2])
    assert all(row.cells[difference] for row in compared.rows if "removed" in str(row.cells))


def test_a_fix_stands_beside_its_finding_and_nowhere_else(state):
    (finding,) = [f for f in state.deck.now.results.findings if f.severity != "note"]
    rows = tables(state, fix(state, "turn the mesh", finding, kept=lambda c: False))
    assert [row for row in rows if "turn the mesh" in row] == [row for row in rows if brief(finding) in row] != []


def test_state_that_is_replicated_is_among_the_first_rows():
    """It costs no time, and more than half of what a device needs."""
    fault = FAULTS["replicated optimizer"]
    program = sv.trace(fault.fn, *fault.args(LARGE), donate_argnums=fault.donated)
    plan = sv.Plan("data=2,model=4", fault.specs, fault.out)
    state = ExplorerState(program, plan, level="propagated", target="tpu v5e:2x4", debounce=60)
    (finding,) = [f for f in state.deck.now.results.findings if f.rule in fault.rules]
    assert not finding.numbers["seconds"] and finding.numbers["saved_bytes"] > 0.5 * state.cost.needs.total
    assert any(brief(finding) in row for row in tables(state)[:3])


@pytest.mark.long
def test_state_that_takes_a_little_time_too_is_among_the_first_rows():
    """The 8B's momentum whole on each device: more than half of the arguments."""
    example = sv.gallery.llama("8b", mesh="data=8,model=8")
    whole = {name: P() for name in example.program.bind(example.plan).in_specs if name.startswith("momentum")}
    plan = example.plan.with_spec(whole)
    state = ExplorerState(example.program, plan, level="partitioned", target="tpu v5p:4x4x4", debounce=0)
    state.wait("partitioned")
    (finding,) = [f for f in state.deck.now.results.findings if f.rule == "unlike-parameter"]
    assert finding.numbers["seconds"] > 0
    assert finding.numbers["saved_bytes"] > 0.5 * state.cost.needs.parts["arguments"]
    (row, *_) = [row for row in tables(state)[:3] if brief(finding) in row]
    assert row.startswith(format_bytes(finding.numbers["saved_bytes"]))


def test_a_fix_of_another_finding_has_a_row_of_its_own(state):
    (finding,) = [f for f in state.deck.now.results.findings if f.severity != "note"]
    other = dataclasses.replace(finding, id="of-a-note")
    rows = tables(state, fix(state, "give it the spec", other, kept=lambda c: False))
    (row,) = [row for row in rows if "give it the spec" in row]
    assert brief(finding) not in row and "saves 10.0 µs of 1.00 ms" in row


def test_what_a_fix_helps_stands_first_by_what_it_saves(state):
    (finding,) = [f for f in state.deck.now.results.findings if f.severity != "note"]
    of_a_row = fix(state, "fix the finding", finding)
    apart = fix(state, "give it the spec", dataclasses.replace(finding, id="of-a-note"), kept=lambda c: False)
    for seconds, first in ((2e-5, "give it the spec"), (5e-6, "fix the finding")):
        rows = tables(state, of_a_row, dataclasses.replace(apart, seconds=seconds))
        assert first in rows[0] and all("fix the finding" in row or "give it the spec" in row for row in rows[:2])


def test_a_note_whose_fix_helps_has_a_row_that_costs_what_the_fix_saves():
    example = sv.gallery.mlp(mesh="data=4,model=2", batch=65_536)  # so large that what it keeps is no on-chip memory's
    state = ExplorerState(example.program, example.plan, level="propagated", target="tpu v5e:2x4", debounce=60)
    (note, *_) = [f for f in state.deck.now.results.findings if f.severity == "note" and not f.numbers.get("seconds")]
    rows = tables(state, fix(state, "fix the note", note))
    (row,) = [row for row in rows if "fix the note" in row]
    assert row.startswith("10.0 µs ") and brief(note) in row


def test_a_line_has_its_costs_and_its_fixes_alone(state):
    gone = next(c for c in state.report.collectives if c.kind == "all-reduce" and c.axes == ("model",))
    found = tried_fixes(state, fix(state, "drop it", kept=lambda c: c.source != gone.source))
    _, lines = costs_documents(state.deck, found)
    (table,) = lines[gone.source.short].blocks
    rows = [" ".join(map(plain, row.cells)) for row in table.rows]
    assert len(rows) > 1 and any("all-reduce model" in row and "partial sums" in row for row in rows)
    assert any(
        piece.kind == "ask" for row in table.rows for cell in row.cells if isinstance(cell, tuple) for piece in cell
    )
    assert sum("drop it" in row for row in rows) == 1
    here = state.cost.compute_by_line()[gone.source.file, gone.source.line]
    (products,) = [row for row in rows if "matrix products" in row]
    assert products.startswith(format_seconds(here))


def test_a_fix_of_the_plan_stands_beside_what_it_lessens(state):
    gone = next(c for c in state.report.collectives if c.kind == "all-reduce" and c.axes == ("model",))
    like = lambda c: (c.kind, c.axes, c.source) == (gone.kind, gone.axes, gone.source)
    rows = tables(state, fix(state, "drop it", kept=lambda c: not like(c)))
    (row,) = [row for row in rows if "drop it" in row]
    assert "all-reduce model" in row and gone.source.short in row
    rows = tables(state, fix(state, "change nothing"))
    assert sum("change nothing" in row for row in rows) == 1

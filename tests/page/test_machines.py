"""The Machine tab: links, company and orders against the torus and the cost model; the pane in a headless Chromium."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardviz.costs.collective import collective_seconds
from shardviz.costs.machine import Machine
from shardviz.costs.orders import ROW_MAJOR, exchanged, orders, reordered
from shardviz.costs.placement import Placement
from shardviz.costs.routes import torus_links
from shardviz.costs.step_cost import cost_of
from shardviz.errors import MeshError
from shardviz.explorer.explorer import ExplorerState
from shardviz.layouts import layout
from shardviz.notation import DeviceMesh
from shardviz.page.explorer import Explorer
from shardviz.page.payload import pane
from shardviz.page.targets import device_groups_view, machine_view
from shardviz.plan.plan import Plan
from shardviz.records.amounts import format_rate, format_seconds, format_times
from shardviz.view.machine import MOST_NODES, blocks, device_groups, device_groups_picture, floor
from shardviz.view.panes import cost_pane, shard_map_pane
from shardviz.view.picture import Lines
from tests.costs.machines import placed as meshes_on_machines
from tests.page.documents import cells, rows, said, table
from tests.page.machines import LARGE, MESHES, stepped

TPUS = [target for target in MESHES if target.startswith("tpu")]
SOME = [target for target in MESHES if target not in LARGE]


def rides(view) -> list[list[str]]:
    """What the page is told of each mesh axis: its name and size, its rate, what it rides on."""
    return rows(view, "axis-rides") if table(view["document"]["blocks"], "axis-rides") else []


def at(view) -> list[int]:
    """A device's place along each mesh axis."""
    lead = view["document"].get("lead", [[]])[0]
    return [int(piece) for piece in lead if isinstance(piece, str) and piece.isdigit()]


def placed(target: str) -> Placement:
    return Placement.of(MESHES[target], target)


def chips(place: Placement) -> tuple[set, set]:
    """The pairs of tiles that a link joins, without and with those that wrap: by coordinates, not by the picture."""
    machine, drawn = place.machine, floor(place)
    of_chip = {}
    for position, device in enumerate(place.order):
        at = (int(machine.slices()[device]), *machine.coords()[device, :3].tolist())
        of_chip[at] = int(drawn.node_of[position])
    plain, wrapping = set(), set()
    for link in torus_links(machine):
        one, other = of_chip[link.slice, *link.one], of_chip[link.slice, *link.other]
        if one != other:
            (wrapping if link.wraps else plain).add((min(one, other), max(one, other)))
    return plain, wrapping


@pytest.mark.parametrize("target", MESHES)
def test_every_device_is_on_one_tile_and_tiles_lie_apart(target):
    place, drawn = placed(target), floor(placed(target))
    assert sorted(itertools.chain(*(n.places for n in drawn.nodes))) == list(range(place.mesh.size))
    assert all(p in drawn.nodes[drawn.node_of[p]].places for p in range(0, place.mesh.size, 7))
    assert len(drawn.nodes) <= MOST_NODES
    w, h = drawn.tile
    at = np.array([(n.x, n.y) for n in drawn.nodes])
    assert (at[:, 0] >= w / 2).all() and (at[:, 0] <= drawn.width - w / 2).all()
    assert (at[:, 1] >= h / 2).all() and (at[:, 1] <= drawn.height - h / 2).all()
    far = np.abs(at[:, None, :] - at[None, :, :])
    covered = (far[..., 0] < w) & (far[..., 1] < h)
    np.fill_diagonal(covered, False)
    assert not covered.any()
    assert drawn.width < 640, "a pane of 600 pixels shows it almost unscaled"


@pytest.mark.parametrize("target", [t for t in SOME if t in TPUS])
def test_tiles_say_where_their_chips_are(target):
    place = placed(target)
    machine, drawn = place.machine, floor(place)
    for position in range(0, place.mesh.size, 5):
        device = place.order[position]
        x, y, z, _ = machine.coords()[device].tolist()
        at = f"({x}, {y}, {z})" if len(machine.topology) > 2 else f"({x}, {y})"
        text = drawn.nodes[drawn.node_of[position]].text
        assert text.startswith(f"chip {at}, host {machine.processes()[device]}")
        assert text.endswith(f"slice {machine.slices()[device]}") == (machine.num_slices > 1)


@pytest.mark.parametrize("target", TPUS)
def test_links_join_neighbours_and_have_the_axis_that_steps_along_them(target):
    place, drawn = placed(target), floor(placed(target))
    plain, wrapping = chips(place)
    found = {(min(p), max(p)): axis for axis, pairs in drawn.links.items() for p in pairs}
    assert set(found) == plain
    places = place.mesh.coordinates()
    if blocks(place.machine) == (1, 1, 1):
        for (one, other), axis in found.items():
            ends = [drawn.nodes[n].places[0] for n in (one, other)]
            differ = np.flatnonzero(places[ends[0]] != places[ends[1]])
            assert axis == (place.mesh.names[differ[0]] if len(differ) == 1 else None)
    stubs = sum(len(s) for s in drawn.wraps.values())
    dense = not drawn.wraps and bool(wrapping)
    assert dense or stubs >= 2 * len(wrapping)  # an axis of two that wraps has two links between the same chips


def check_company(place: Placement, position: int):
    """Its groups are the placement's, and the links that are lit join two members of one."""
    groups = device_groups(place, position)
    assert [g.axis for g in groups] == [n for n, s in place.mesh.shape.items() if s > 1]
    drawn, lit, names = floor(place), device_groups_picture(place, position), place.mesh.names
    at = {(round(n.x, 6), round(n.y, 6)): number for number, n in enumerate(drawn.nodes)}
    for group in groups:
        own = next(g for g in place.groups((group.axis,)).tolist() if place.order[position] in g)
        assert [place.order[m] for m in group.members] == own
        nodes = {int(drawn.node_of[m]) for m in group.members}
        lines = [
            line for s in lit.shapes if isinstance(s, Lines) and s.stroke == names.index(group.axis) for line in s.lines
        ]
        ends = [[at.get((round(x, 6), round(y, 6))) for x, y in line] for line in lines]
        assert {n for pair in ends for n in pair if n is not None} <= nodes
        route = place.route((group.axis,))
        if drawn.links and len(drawn.nodes) == place.mesh.size // route.on_chip and route.regular and route.neighbours:
            steps = sum(route.per_slice // route.on_chip // leg.size * (leg.size - 1) for leg in route.legs)
            assert sum(None not in pair for pair in ends) >= steps * route.slices


@pytest.mark.parametrize("target", LARGE)
def test_company_on_large_machines(target):
    check_company(placed(target), placed(target).mesh.size // 3)


@settings(max_examples=60)
@given(meshes_on_machines(), st.data())
def test_any_mesh_on_any_machine_is_drawn(found, data):
    machine, mesh, _ = found
    cost, report = stepped(machine.text, mesh.text)
    view = machine_view(cost)
    places = sorted(itertools.chain(*(n.places for n in floor(cost.placement).nodes)))
    assert places == list(range(machine.size))
    several = [[f"{n} = {s}"] for n, s in mesh.shape.items() if s > 1]
    assert [content[:1] for content in rides(view)] == several
    device = data.draw(st.integers(0, machine.size - 1))
    picked = device_groups_view(cost, device, report, "")
    assert at(picked) == mesh.coordinates()[device].tolist()
    check_company(cost.placement, device)
    assert len(json.dumps([view, picked, pane(cost_pane(cost))])) < 400_000


def test_slices_and_domains_are_framed():
    kinds = {t: [f.kind for f in floor(placed(t)).frames] for t in MESHES}
    assert kinds["tpu v5e:16x16*2"].count("slice") == 2
    assert kinds["gpu h100:32x8"].count("host") == 32
    assert kinds["gpu gb200:36x4"].count("domain") == 2 and kinds["gpu gb200:36x4"].count("host") == 36
    assert kinds["tpu v5p:4x4x4"].count("plane") == 4 and kinds["tpu v6e:16x16"] == []


@pytest.mark.parametrize("target", MESHES)
def test_what_is_sent_stays_small_and_says_what_is_not_drawn(target):
    cost, report = stepped(target)
    view = machine_view(cost)
    assert len(json.dumps(view)) < 200_000
    assert len(json.dumps(device_groups_view(cost, cost.mesh.size // 2, report, ""))) < 50_000
    stand, notes = floor(cost.placement), view["picture"]["notes"]
    several = len(stand.nodes) < cost.machine.num_chips
    assert bool(stand.grain) == several and (not several or stand.grain in notes)


@pytest.mark.parametrize("target", MESHES)
def test_axes_say_what_they_ride_on(target):
    cost, _ = stepped(target)
    view = machine_view(cost)
    sent = table(view["document"]["blocks"], "axis-rides")["rows"]
    for row, (axis, rate, words), path in zip(sent, rides(view), cost.placement.paths, strict=True):
        route = path.route
        assert axis == f"{path.name} = {path.size}" and words.startswith(str(path)) and str(route) in words
        gather = collective_seconds("all-gather", 1e9, (path.name,), cost.placement, cost.machine)
        assert said(row["detail"][0]["pieces"]) == gather.formula and rate == format_rate(gather.bytes_per_s)
        assert row["detail"][0]["label"] == f"an all-gather of 1 GB, bound by {gather.bound}"
        assert (f"{route.slices} slices over DCN" in words) == (route.slices > 1)
        assert (f"{route.domains} NVLink domains over the network" in words) == (route.domains > 1)
        assert (f"crosses hosts ({route.hosts})" in words) == (route.hosts > 1)
        assert ("stays on one host" in words) == (route.hosts == route.slices == route.domains == 1)
        ringed = [leg.axis for leg in route.legs if leg.ring]
        assert ("wraps around " + ", ".join(ringed) in words) == bool(ringed)


@pytest.mark.parametrize("target", SOME)
def test_orders_cost_what_a_report_in_that_order_costs(target):
    cost, made = stepped(target)
    for order in orders(cost):
        other = replace(made, plan=replace(made.plan, mesh=order.mesh))
        assert cost_of(other, target).step.communication == pytest.approx(order.communication)
    present = [o for o in orders(cost) if o.now]
    assert len(present) == 1 and present[0].key == "mesh_utils"


def test_a_meshs_own_order_is_said():
    target = "tpu v5e:8x16"
    _, made = stepped(target)
    mesh = reordered(DeviceMesh.of(MESHES[target]), ROW_MAJOR)
    cost = cost_of(replace(made, plan=replace(made.plan, mesh=mesh)), target)
    view = machine_view(cost)["orders"]
    assert view["keys"][view["now"]] == "row-major" and "now" in rows(view, "orders")[view["now"]][2]
    assert view["listed"] == "[128]T(0)"
    assert "device order: the mesh's own" in said(table(view["document"]["blocks"], "order")["lead"])


def test_scattered_devices_take_longer_and_say_how_much():
    target = "tpu v5e:8x16"
    _, made = stepped(target)
    mesh = reordered(DeviceMesh.of(MESHES[target]), np.random.RandomState(0).permutation(128).tolist())
    cost = cost_of(replace(made, plan=replace(made.plan, mesh=mesh)), target)
    view = machine_view(cost)
    choice = view["orders"]
    _, time, ratio = rows(choice, "orders")[choice["now"]]
    jax = next(o for o in orders(cost) if o.key == "mesh_utils")
    assert choice["keys"][choice["now"]] == "own" and time == format_seconds(cost.step.communication)
    assert ratio == f"now {format_times(cost.step.communication / jax.communication)} as long"
    assert all("its devices are not neighbours" in words for _, _, words in rides(view))


def test_any_other_order_is_the_meshs_own():
    target, backwards = "gpu h100:2x8", list(range(16))[::-1]
    _, made = stepped(target)
    mesh = reordered(DeviceMesh.of(MESHES[target]), backwards)
    cost = cost_of(replace(made, plan=replace(made.plan, mesh=mesh)), target)
    assert [o.key for o in orders(cost) if o.now] == ["own"]
    content = cost.placement.device(3).text()
    assert content.startswith("place 3\n") and "JAX's id 12" in content


def test_a_device_is_one_of_the_meshs():
    place = placed("gpu h100:2x8")
    for device in (-1, 16):
        with pytest.raises(MeshError, match=f"place {device}: the mesh data=2,model=8 has 16; give 0 to 15"):
            place.device(device)


@pytest.mark.parametrize("target", MESHES)
def test_a_placement_and_a_device_tell_of_themselves(target):
    place = placed(target)
    said = " ".join(place.text(1000).split())
    assert str(place.machine) in said and all(str(path) in said for path in place.paths)
    content = " ".join(place.device(place.mesh.size - 1).text(1000).split())
    assert all(group.text in content for group in device_groups(place, place.mesh.size - 1))


@pytest.mark.parametrize("mesh", ["data=4,model=2", "data=1"])
def test_simulated_devices_have_no_links_and_say_so(mesh):
    place = Placement.of(mesh, "cpu")
    for content in (place.text(), place.html(), place.device(0).text(), place.device(0).html()):
        assert "simulated devices have no links" in content


# In the state and the explorer.


@pytest.fixture
def on_tpu(program, plan, compilers):
    return Explorer(ExplorerState(program, plan, debounce=60, target="tpu v5e:2x4"))


def test_an_order_is_an_edit_that_changes_the_cost_at_once_and_can_be_undone(on_tpu):
    state = on_tpu.state
    before = state.cost.placement
    assert not before.chosen
    assert state.set_order("row-major")
    assert state.plan.mesh.in_order and state.cost.placement.device_ids() == tuple(range(8))
    assert state.cost.placement.order != before.order and state.level == "propagated"
    assert state.exchange_axes("data", "model")
    wanted = exchanged(DeviceMesh.of("data=4,model=2"), Machine.of("tpu v5e:2x4"), "data", "model")
    assert state.plan.mesh == wanted and state.cost.placement == Placement.of(wanted, "tpu v5e:2x4")
    assert state.set_order([7, 6, 5, 4, 3, 2, 1, 0]) and state.cost.placement.device_ids()[0] == 7
    for _ in range(3):
        assert state.undo()
    assert state.cost.placement == before
    assert state.set_order("row-major") and state.set_order("mesh_utils") and state.cost.placement == before


def test_an_order_that_is_none_is_refused_in_its_place(on_tpu):
    state = on_tpu.state
    plan = state.plan
    assert not state.set_order("0,1,2")
    assert state.error["place"] == "order" and "8 places need 8 different device ids" in state.error["message"]
    assert not state.exchange_axes("data", "nowhere") and "has no axis 'nowhere'" in state.error["message"]
    assert state.plan is plan
    state.set_target("cpu")
    assert not state.exchange_axes("data", "model") and "no links" in state.error["message"]


def test_row_major_lasts_when_an_axis_is_resized(on_tpu):
    on_tpu.state.set_order("row-major")
    on_tpu.state.resize_axis("data", 2)
    assert on_tpu.state.plan.mesh == replace(DeviceMesh.of("data=2,model=2"), in_order=True)
    on_tpu.state.add_axis("seq", 2)
    assert on_tpu.state.plan.mesh.in_order


def test_row_major_lasts_when_an_axis_is_removed_or_renamed():
    plan = Plan(DeviceMesh.of("data=4,model=2 devices=[8]T(0)"))
    assert plan.without_axis("model").mesh.text == "data=4 devices=[4]T(0)"
    assert plan.rename_axis("model", "m").mesh.text == "data=4,m=2 devices=[8]T(0)"


def test_a_device_is_told_of_only_while_somebody_looks(on_tpu):
    assert on_tpu.machine == on_tpu.device_groups == {}
    on_tpu.tab = "machine"
    assert said(on_tpu.machine["document"]["title"]).startswith("tpu v5e:2x4") and on_tpu.device_groups == {}
    on_tpu.device = 5
    assert at(on_tpu.device_groups) == [2, 1] and said(on_tpu.device_groups["document"]["title"]) == "device 5"
    on_tpu.state.select("x")
    value = on_tpu.report.value("x")
    index = layout(value.shape, value.spec, on_tpu.report.mesh).index(5)
    held = table(on_tpu.device_groups["document"]["blocks"], "device-holds")
    assert said(held["pieces"][0]) == f"x[{index[0].start}:{index[0].stop}, :]"
    on_tpu.state.resize_axis("data", 2)  # there is no device 5 any more
    assert on_tpu.device_groups == {}
    on_tpu.state.set_target("cpu")
    assert on_tpu.machine.keys() == {"document"}
    assert "no links" in said(table(on_tpu.machine["document"]["blocks"], "machine-why")["pieces"])


@pytest.mark.parametrize("spec", ["P('data')", "P('model', 'data')", "P(('data', 'model'))", "P()"])
@pytest.mark.parametrize("order", ["mesh_utils", "[4,2]T(1,0)"])
def test_a_device_is_in_the_cell_of_the_shard_map_that_it_holds(on_tpu, spec, order):
    on_tpu.state.set_order(order)
    on_tpu.state.set_spec("x", spec)
    on_tpu.state.select("x")
    value = on_tpu.report.value("x")
    cut = layout(value.shape, value.spec, on_tpu.report.mesh)
    content = cells(shard_map_pane(on_tpu.report, "x"))
    assert sorted(content) == list(range(8))
    for place, words in content.items():
        said = words[words.index("[") + 1 : words.index("]")].split(", ")
        index = cut.index(int(cut.device_ids[place]))
        whole = [f"{s.start}:{s.stop}" for s in index]
        assert [s for s in said if s != ":"] == [w for w, s in zip(whole, said, strict=True) if s != ":"]
        assert all(s != ":" or i == slice(0, n) for s, i, n in zip(said, index, value.shape, strict=True))


def test_a_chip_is_picked_and_its_company_lit_and_the_shard_map_follows(open_page, on_tpu):
    page = open_page(on_tpu, width=1500)
    page.go("machine")
    first = page.at("device-0")
    first.focus()
    assert "chip (0, 0)" in page.at("hovered").inner_text()
    page.tab.keyboard.press("ArrowRight")
    place = floor(on_tpu.state.cost.placement).nodes[1].places[0]
    assert page.focus() == f"device-{place}"
    page.press("Enter")
    assert on_tpu.device == place and page.at("device_groups").locator("h2").inner_text() == f"device {place}"
    lit = {int(n.get_attribute("data-key")) for n in page.tab.locator(".sv-over [data-key]").all()}
    assert {m for group in device_groups(on_tpu.state.cost.placement, place) for m in group.members} == lit
    assert page.at(f"device-{place}").get_attribute("aria-pressed") == "true"
    page.go("shards")
    pressed = page.at("panel-shards").locator("[aria-pressed=true]")
    labels = re.findall(r"\d+", pressed.get_attribute("aria-label"))
    low, high = int(labels[0]), int(labels[-1])
    assert low <= place <= high or str(place) in labels
    page.click(page.at("panel-shards").get_by_test_id("cell-0"))
    assert on_tpu.device == 0
    page.go("machine")
    assert page.at("device_groups").locator("h2").inner_text() == "device 0"
    page.enter("pick-device", "6")
    assert on_tpu.device == 6 and page.at("device_groups").locator("h2").inner_text() == "device 6"


def test_orders_are_chosen_on_the_page(open_page, on_tpu):
    page = open_page(on_tpu, width=1500)
    page.go("machine")
    page.at("order-row-major").check()
    assert page.edits() == [{"op": "set_order", "order": "row-major"}]
    page.answer()
    assert on_tpu.state.plan.mesh.in_order and page.at("order-row-major").is_checked()
    page.enter("order-text", "7,6,5,4,3,2,1")
    assert "different device ids" in page.at("order-error").inner_text()
    page.at("order-text").fill("7,6,5,4,3,2,1,0")
    page.click("order-set")
    assert on_tpu.state.plan.mesh.device_ids == (7, 6, 5, 4, 3, 2, 1, 0) and page.at("order-own").is_checked()
    assert page.at("order-text").input_value() == "[7,6,5,4,3,2,1,0]"
    page.at("order-mesh_utils").check()
    page.answer()
    assert not on_tpu.state.cost.placement.chosen

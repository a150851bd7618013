"""The machine as JSON for the page: the chooser with each chip's topologies and compiler options, and the machine
tab."""

from __future__ import annotations

import re

from shardviz.compiler.targets import Targets, TargetStatus, targets
from shardviz.costs.chips import Chip, chips
from shardviz.costs.machine import Machine, natural, sizes_near, topologies
from shardviz.costs.orders import orders
from shardviz.costs.step_cost import StepCost
from shardviz.explorer.explorer import ExplorerState
from shardviz.judge.report import Report
from shardviz.notation import DeviceMesh
from shardviz.page.payload import Json, pane
from shardviz.paint.json import json_of
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.options import option_sets, options_text
from shardviz.view.machine import device_groups_picture, machine_picture
from shardviz.view.placement import device_pane, machine_pane, orders_pane, without_machine

MOST_SHAPES = 3
_ACROSS = re.compile(r"dcn|slice|pod", re.IGNORECASE)  # names of mesh axes that connect slices


def targets_view(state: ExplorerState) -> Json:
    """Return the target, remarks on it, and the other choices.

    Every chip has `options` (topologies with as many devices as the mesh, most cube-like first) or `none`, which names
    its sizes. Every kind says whether programs can be compiled for it here, and if not what is missing.
    """
    mesh, now, statuses = state.report.mesh, state.machine, targets()
    across = next((m.text for m in topologies("v5e", mesh.size) if m.num_slices > 1), "tpu v5e:4x4*2")
    return {
        "target": state.target,
        "label": label(now),
        "kind": now.chip.kind,
        "words": str(now),
        "remark": f"{now.chip.name} {state.target_remark}" if state.target_remark else "",
        "lack": _lack(state, statuses),
        "examples": ["v5p", across, topologies("h100", mesh.size)[0].text, "attached"],
        "trouble": state.cost_error,
        "devices": plural(mesh.size, "device"),
        "groups": [_group(status, mesh, now) for status in statuses if status.name != "cpu"],
        "options": options_text(state.bound.options),
        "sets": [
            {"name": name, "title": f"{each.text} {options_text(each.options)}. From {each.source}"}
            for name, each in option_sets.items()
        ],
    }


def _lack(state: ExplorerState, statuses: Targets) -> Json | None:
    """Return the message that nothing here compiles for the machine, with the command that installs a compiler."""
    if not state.missing:
        return None
    status = next(s for s in statuses if s.name == state.machine.chip.kind)
    install = "" if status.ready else status.install
    return {
        "text": "no compiler:" if install else "no compiler",
        "install": install,
        "why": f"No compiler for it is installed, so results stop at the partitioner: {state.missing}",
    }


def label(machine: Machine) -> str:
    """Return `v5p 4x4x4`: the target's text without its kind."""
    return machine.text if machine.chip.kind == "cpu" else machine.text.split(" ", 1)[1].replace(":", " ")


def _group(status: TargetStatus, mesh: DeviceMesh, now: Machine) -> Json:
    own = [chip for chip in chips().values() if chip.kind == status.name]
    if now.chip.kind == status.name and now.chip not in own:
        own.insert(0, now.chip)  # one of the person's own
    return {
        "kind": status.name.upper(),
        "ready": status.ready,
        "missing": status.missing,
        "install": status.install,
        "chips": [_chip(chip, mesh, now, listed=chip.name in chips()) for chip in own],
    }


def _chip(chip: Chip, mesh: DeviceMesh, now: Machine, listed: bool) -> Json:
    machines = list(_sensible(chip, mesh))
    if now.chip == chip and now.size == mesh.size and now not in machines:
        machines.insert(0, now)
    per_device = (chip.hbm_usable_bytes or chip.hbm_bytes or 0.0) / chip.devices_per_chip
    view: Json = {
        "name": chip.name,
        "memory": format_bytes(per_device) if per_device else "",
        "options": [
            {
                "target": m.text if listed or m != now else "",  # a chip of one's own is not found again by its text
                "label": label(m).partition(" ")[2],
                "title": str(m),
                "on": m == now,
            }
            for m in machines
            if listed or m == now
        ],
    }
    if not view["options"]:
        near = " or ".join(map(str, sizes_near(chip, mesh.size)))
        view["none"] = f"has {near} devices, not {mesh.size}" if near else f"has no topology of {mesh.size} devices"
    return view


def _sensible(chip: Chip, mesh: DeviceMesh) -> tuple[Machine, ...]:
    """Return a few topologies: of one slice, and of as many slices as a mesh axis suggests."""
    machines = topologies(chip, mesh.size)
    if chip.kind == "gpu":  # whole NVLink domains, or as many GPUs on a host as there can be
        hosts = (m for m in machines[1:] if chip.domain_spans_hosts and m.topology[1] == 4)
        return (*machines[:1], *hosts)
    hinted = {size for name, size in mesh.shape.items() if _ACROSS.search(name) and size > 1}
    across = [m for m in machines if m.num_slices in hinted]
    single = [m for m in machines if m.num_slices == 1][: MOST_SHAPES - len(across[:1])]
    some = [*across[:1], *single]
    first = natural(chip, mesh.size)
    return tuple(some) if some or first is None else (first,)


def machine_view(cost: StepCost | None, why: str = "") -> Json:
    """Return the links of each axis, the machine with the mesh, and the device orders; without links only a hint."""
    if cost is None:
        return pane(without_machine(why, "links between them", "machine-why"))
    options = orders(cost)
    choice = {
        "document": json_of(orders_pane(cost, options)),
        "keys": [option.key if isinstance(option.key, str) else list(option.key) for option in options],
        "now": next(place for place, option in enumerate(options) if option.now),
        "listed": cost.mesh.text.partition("devices=")[2].partition(" slices=")[0],
    }
    return pane(machine_pane(cost), picture=machine_picture(cost.placement).to_json(), orders=choice)


def device_groups_view(cost: StepCost | None, device: int, report: Report, selected: str) -> Json:
    """Return a device by its position in the mesh: its place, its part of the selected value, and its groups; empty for
    none."""
    if cost is None or not 0 <= device < cost.mesh.size:
        return {}
    shown = device_pane(cost, device, report, selected)
    return pane(shown, device=device, picture=device_groups_picture(cost.placement, device).to_json())

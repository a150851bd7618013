"""The machine as the page gets it: its chips and links with the mesh on them, one device's company, and the orders."""

from __future__ import annotations

import itertools

from shardviz.costs import AxisPath, Knee, Placement, collective_seconds
from shardviz.costs.orders import Order, orders
from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.layouts import layout
from shardviz.records.amounts import format_rate, format_seconds, plural
from shardviz.render.company import Group, company
from shardviz.render.machine_parts import Picture
from shardviz.render.machine_picture import picture
from shardviz.render.rosetta import sharding_of
from shardviz.session.explorer import ExplorerState
from shardviz.view.ranges import device_ranges
from shardviz.view.step_cost import headline, placed_words
from shardviz.widgets.payload import Json

MOST_CYCLED = 8
"""Devices of a tile up to which clicking it again goes from one to the next."""
MAY_DIFFER = "; in another order the compiler may run other collectives than these"
_SAMPLE = 1e9  # bytes of the gather that an axis' formula is shown with


def machine_view(state: ExplorerState) -> Json:
    """The picture of the machine with the mesh on it, what each axis rides on, and the orders to choose from.

    Without a machine that has links, `why` says what to do about it, and there is nothing else.
    """
    cost = state.cost
    if cost is None:
        return {"why": state.cost_error or "The target is cpu: simulated devices, with no links between them."}
    return machine_json(cost)


def machine_json(cost: StepCost) -> Json:
    """`machine_view` of a cost."""
    drawn = picture(cost.placement)
    paths = [p for p in cost.placement.paths if p.size > 1]
    knees = {knee.name: knee for knee in cost.knees()}
    axes = [_axis(cost, path, knees.get(path.name)) for path in paths]
    return {
        "title": str(cost.machine),
        "text": f"mesh {cost.mesh} on {cost.machine.text}. " + " ".join(f"{a['name']}: {a['rides']}." for a in axes),
        "kind": cost.machine.chip.kind,
        "width": round(drawn.width),
        "height": round(drawn.height),
        "tile": [round(n, 1) for n in drawn.tile],
        "nodes": _nodes(cost, drawn),
        "frames": [
            {"kind": f.kind, "points": " ".join(f"{x:.0f},{y:.0f}" for x, y in f.points), "text": f.text,
             "x": round(f.points[0][0]), "y": round(f.points[0][1])}
            for f in drawn.frames
        ],
        "links": [{"axis": a, "pairs": list(itertools.chain(*pairs))} for a, pairs in _by_axis(drawn.links)],
        "wraps": [
            {"axis": a, "stubs": [[n, round(x, 2), round(y, 2)] for n, x, y in stubs]}
            for a, stubs in _by_axis(drawn.wraps)
        ],
        "grain": drawn.grain,
        "dense": cost.machine.chip.kind == "tpu" and not drawn.wraps and len(drawn.nodes) > 128,
        "axes": axes,
        "notes": _notes(cost, drawn),
        "order": _orders(cost),
    }  # fmt: skip


def _by_axis(found: dict) -> list[tuple[str | None, list]]:
    return sorted(found.items(), key=lambda item: (item[0] is not None, item[0] or ""))


def _nodes(cost: StepCost, drawn: Picture) -> Json:
    """Column by column: middles, the first place, how many devices, and where each is."""
    several = any(len(n.places) > 1 for n in drawn.nodes)
    view: Json = {
        "x": [round(n.x, 1) for n in drawn.nodes],
        "y": [round(n.y, 1) for n in drawn.nodes],
        "place": [n.places[0] for n in drawn.nodes],
        "text": [n.text for n in drawn.nodes],
        "shade": [n.shade for n in drawn.nodes],
    }
    if several:
        view["holds"] = [device_ranges(n.places) for n in drawn.nodes]
        view["all"] = [list(n.places) if len(n.places) <= MOST_CYCLED else [n.places[0]] for n in drawn.nodes]
    return view


def _axis(cost: StepCost, path: AxisPath, knee: Knee | None) -> Json:
    """What one mesh axis rides on: words, how fast, and the arithmetic for a gather of 1 GB."""
    route, machine = path.route, cost.machine
    gather = collective_seconds("all-gather", _SAMPLE, (path.name,), cost.placement, machine, exact=cost.exact)
    tags = []
    if machine.chip.kind == "tpu":
        rings = [leg.axis for leg in route.legs if leg.ring]
        if route.legs or not route.regular:
            tags.append(f"wraps around {', '.join(rings)}" if rings else "does not wrap around")
        if not route.neighbours:
            tags.append("its members are not next to each other")
    crosses = []
    if route.hosts > 1:
        crosses.append(plural(route.hosts, "host"))
    if route.slices > 1:
        crosses.append(f"{plural(route.slices, 'slice')} (DCN)")
    if route.domains > 1:
        crosses.append(f"{plural(route.domains, 'NVLink domain')} (network)")
    tags.append(f"crosses {', '.join(crosses)}" if crosses else "stays on one host")
    return {
        "name": path.name,
        "size": path.size,
        "rides": str(route),
        "tags": tags,
        "width": "" if knee is None else format_rate(knee.bytes_per_s),
        "formula": gather.formula,
        "bound": gather.bound,
    }


def _notes(cost: StepCost, drawn: Picture) -> list[str]:
    found = [drawn.grain] if drawn.grain else []
    if cost.machine.chip.kind == "tpu":
        if len({n.shade for n in drawn.nodes}) > 1:
            found.append("tiles of another shade are on another host")
        if drawn.wraps:
            found.append("a short line with an open end is a link that goes round to the other side")
        elif any(cost.machine.wrap):
            found.append("links that go round to the other side are drawn for the device that was picked")
        if None in drawn.links:
            found.append("a dotted link joins two chips that differ along several mesh axes: no axis steps along it")
    else:
        found.append(
            "the GPUs of an NVLink domain reach each other through its switch; domains are joined by the network"
        )
    return found


def _orders(cost: StepCost) -> Json:
    """The orders that may be chosen, each with what the collectives would take, and how the present one differs."""
    options = orders(cost)
    present = next(o for o in options if o.now)
    jax = options[0]
    rows = [
        {"key": o.key if isinstance(o.key, str) else list(o.key), "words": _words(o), "now": o.now,
         "time": format_seconds(o.communication), "ratio": _ratio(o.communication, jax.communication)}
        for o in options
    ]  # fmt: skip
    return {
        "options": rows,
        "words": "devices stand " + placed_words(cost) + (MAY_DIFFER if cost.as_run else ""),
        "listed": cost.mesh.text.partition("devices=")[2].partition(" slices=")[0],
        "changes": [] if present is jax else _changes(jax, cost),
        "headline": headline(cost),
    }


def _words(order: Order) -> str:
    return _name(order.key) + "".join(f"; {_name(key)} comes to the same" for key in order.also)


def _name(key: str | tuple[str, str]) -> str:
    if isinstance(key, tuple):
        return f"{key[0]} and {key[1]} in each other's place"
    return {
        "mesh_utils": "as JAX's mesh_utils would choose",
        "row-major": "row-major, device i at place i",
        "own": "an order of the mesh's own",
    }[key]


def _ratio(seconds: float, of: float) -> str:
    """`1.4 x as long`; empty where there is no difference to speak of."""
    if not of or abs(seconds / of - 1) < 0.005:
        return ""
    return f"{seconds / of:.2f} x as long" if seconds > of else f"{seconds / of:.2f} x"


def _changes(jax: Order, cost: StepCost) -> list[Json]:
    """What each axis rides on now, and in the order that mesh_utils would choose, where they differ."""
    before = {p.name: str(p) for p in Placement.of(jax.mesh, cost.machine).paths}
    return [
        {"axis": p.name, "now": str(p), "before": before[p.name]}
        for p in cost.placement.paths
        if before[p.name] != str(p)
    ]


def company_view(state: ExplorerState, device: int) -> Json:
    """One device: where it is, what it holds of the selected value, and its group along each mesh axis.

    Args:
        device: its place in the mesh; below 0 for none.
    """
    cost = state.cost
    if cost is None or not 0 <= device < cost.mesh.size:
        return {}
    view = company_json(cost, device)
    value = next((v for v in state.report.values if v.name == state.selected), None)
    if value is not None:
        try:
            cut = layout(value.shape, sharding_of(value, state.report.mesh), state.report.mesh)
            index = cut.index(int(cut.device_ids[device]))
        except ShardvizError:  # a sharding of which the report knows the text only
            return view
        parts = [":" if s == slice(0, n) else f"{s.start}:{s.stop}" for s, n in zip(index, value.shape, strict=True)]
        view["holds"] = f"{value.label or value.name}[{', '.join(parts)}]"
    return view


def company_json(cost: StepCost, device: int) -> Json:
    """`company_view` of a cost, without what the device holds."""
    drawn = picture(cost.placement)
    place, node = cost.placement, int(drawn.node_of[device])
    listed = place.order[device]
    ident = int(cost.machine.ids()[listed])
    where = drawn.nodes[node].text
    if drawn.grain:
        where = f"one of {len(drawn.nodes[node].places)} of {where}"
    name = f"device {device}" if not cost.mesh.device_ids else f"place {device}"
    return {
        "device": device,
        "node": node,
        "title": name,
        "where": where + (f"; JAX's id {ident}" if ident != device else ""),
        "at": [int(n) for n in cost.mesh.coordinates()[device]],
        "groups": [_group(group, drawn) for group in company(cost.placement, drawn, device)],
    }


def _group(group: Group, drawn: Picture) -> Json:
    nodes = list(dict.fromkeys(int(drawn.node_of[m]) for m in group.members))
    drops = [[n, round(drawn.switch[n])] for n in nodes] if group.domains and drawn.switch and not drawn.grain else []
    return {
        "axis": group.axis,
        "nodes": nodes,
        "hops": list(itertools.chain(*group.hops)),
        "arcs": [{"d": a.path, "x": round(a.x, 1), "y": round(a.y, 1), "text": a.text} for a in group.arcs],
        "far": list(itertools.chain(*group.far)),
        "drops": drops,
        "text": group.text,
    }

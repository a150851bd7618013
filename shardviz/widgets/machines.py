"""The machine as the page gets it: its picture, what each mesh axis rides on, one device, and the orders."""

from __future__ import annotations

from shardviz.costs import AxisPath, Knee, Placement, collective_seconds
from shardviz.costs.orders import Order, orders
from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.layouts import layout
from shardviz.records.amounts import format_rate, format_seconds, plural
from shardviz.session.explorer import ExplorerState
from shardviz.view.machine import floor
from shardviz.view.machine_picture import company, company_picture, machine_picture
from shardviz.view.rosetta import sharding_of
from shardviz.view.step_cost import headline, placed_words
from shardviz.widgets.payload import Json

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
    knees = {knee.name: knee for knee in cost.knees()}
    return {
        "title": str(cost.machine),
        "kind": cost.machine.chip.kind,
        "picture": machine_picture(cost.placement).to_json(),
        "axes": [_axis(cost, path, knees.get(path.name)) for path in cost.placement.paths if path.size > 1],
        "order": _orders(cost),
    }


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
    place, stand = cost.placement, floor(cost.placement)
    node = stand.nodes[stand.node_of[device]]
    ident = int(cost.machine.ids()[place.order[device]])
    where = f"one of {len(node.places)} of {node.text}" if stand.grain else node.text
    return {
        "device": device,
        "title": f"device {device}" if not cost.mesh.device_ids else f"place {device}",
        "where": where + (f"; JAX's id {ident}" if ident != device else ""),
        "at": [int(n) for n in cost.mesh.coordinates()[device]],
        "picture": company_picture(place, device).to_json(),
        "groups": [{"axis": group.axis, "text": group.text} for group in company(place, device)],
    }

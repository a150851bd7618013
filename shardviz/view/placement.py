"""A mesh on a machine in words: the links of each axis, a device and its groups, and other device orders.

>>> from shardviz.view.document import plain
>>> table = axes_section(Placement.of("data=4,model=8", "tpu v5e:8x4")).blocks[0]
>>> [plain(cell) for cell in table.rows[0].cells]
['data = 4', '45.0 GB/s', 'line of 4 along y; crosses hosts (2) · does not wrap around']
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardviz.costs.collective import collective_seconds
from shardviz.costs.orders import Order, orders
from shardviz.costs.placement import AxisPath, PlacedDevice, Placement
from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.layouts import layout
from shardviz.records import Value
from shardviz.records.amounts import format_rate, format_times
from shardviz.view import document as doc
from shardviz.view.layouts import slice_text
from shardviz.view.machine import device_groups, device_groups_picture, floor, machine_picture
from shardviz.view.picture import Picture, picture
from shardviz.view.rosetta import sharding_of
from shardviz.view.values import found_value

MAY_DIFFER = "with another order the compiler may run other collectives"
CHOOSE = doc.words("choose a machine", strong=True, tip="under the mesh", selects=("choose", "target"))
_SAMPLE = 1e9  # bytes of the all-gather in an axis' formula
_RIDES = "Links of each mesh axis"
_SIMULATED = "simulated devices have no links between them"
_NAMES = {
    "mesh_utils": "as JAX's mesh_utils chooses",
    "row-major": "row-major, device i at place i",
    "own": "the mesh's own order",
}


@doc.document.register
def placement_document(placed: Placement) -> doc.Document:
    """Return the machine, and the links of each mesh axis."""
    title = (doc.words(placed.mesh.text, strong=True), doc.words(f"on {placed.machine}"))
    lead = (doc.words(placed_words(placed)),)
    return doc.Document(title=title, lead=(lead,), blocks=(axes_section(placed),), mesh=placed.mesh)


@picture.register
def machine_figure(cost: StepCost) -> Picture:
    """Return the mesh on its machine, with the groups of the first device."""
    drawn = machine_picture(cost.placement)
    drawn = replace(drawn, notes=(*drawn.notes, placed_words(cost.placement)))
    return drawn.over(device_groups_picture(cost.placement, 0))


def machine_pane(cost: StepCost) -> doc.Document:
    """Return the machine and the links of each mesh axis; the page shows the orders beside the picture."""
    blocks = (axes_section(cost.placement),)
    return doc.Document(title=doc.words(str(cost.machine), strong=True), blocks=blocks, mesh=cost.mesh)


def no_times(trouble: str, then: str) -> tuple[doc.Piece, doc.Piece]:
    """Return why there are no times: the machine's problem, or that a machine must be chosen, and what for."""
    if trouble:
        return doc.words("No times:", strong=True, tone="warn"), doc.words(trouble)
    return CHOOSE, doc.words(then)


def without_machine(why: str, missing: str, name: str) -> doc.Document:
    """Return what to do without a machine; `missing` is what simulated devices lack."""
    none = why or f"No machine is chosen: the devices are simulated, with no {missing}."
    such = doc.words(", such as tpu v5p:4x4x4 or gpu h100:8x8", quiet=True)
    return doc.Document(blocks=(doc.paragraph(none, name=name), doc.paragraph(CHOOSE, such)))


def placed_words(placed: Placement) -> str:
    """Return who chose the device order."""
    return "device order: the mesh's own" if placed.chosen else "device order: as JAX's mesh_utils chooses"


def axes_section(placed: Placement) -> doc.Section:
    """Return the links of each mesh axis, a device's gather bandwidth along it, and the arithmetic."""
    if placed.machine.chip.kind == "cpu":
        return doc.section(_RIDES, *doc.notes(f"None: {_SIMULATED}."))
    rows = [_axis(placed, path) for path in placed.paths if path.size > 1]
    heads = (doc.Column("axis"), doc.Column("all-gather rate", right=True), doc.Column("links", wrap=True))
    rides = doc.Table(columns=heads, rows=tuple(rows), noun="axis", folds="never", name="axis-rides")
    blocks = (rides,) if rows else doc.notes("The mesh has no axis of more than one device.")
    return doc.section(_RIDES, *blocks)


def _axis(placed: Placement, path: AxisPath) -> doc.Row:
    gather = collective_seconds("all-gather", _SAMPLE, (path.name,), placed, placed.machine)
    rate = "" if gather.bytes_per_s is None else format_rate(gather.bytes_per_s)
    far = path.route.slices > 1 or path.route.domains > 1
    rides = (doc.words(str(path), tone="warn" if far else ""), *_remarks(placed, path))
    detail = doc.paragraph(gather.formula, label=f"an all-gather of 1 GB, bound by {gather.bound}", quiet=True)
    return doc.row((doc.axes((path.name,)), doc.words(f"= {path.size}")), doc.words(rate), rides, detail=(detail,))


def _remarks(placed: Placement, path: AxisPath) -> Iterator[doc.Piece]:
    route = path.route
    if placed.machine.chip.kind == "tpu":
        rings = [leg.axis for leg in route.legs if leg.ring]
        if rings:
            yield doc.words(f"· wraps around {', '.join(rings)}", quiet=True)
        elif route.legs or not route.regular:
            yield doc.words("· does not wrap around", tone="warn")
        if not route.neighbours:
            yield doc.words("· its devices are not neighbours", tone="warn")
    if route.hosts == route.slices == route.domains == 1:
        yield doc.words("· stays on one host", quiet=True)


@doc.document.register
def device_document(device: PlacedDevice) -> doc.Document:
    """Return a device's place, and its group along each mesh axis."""
    return _device(device, ())


def device_pane(cost: StepCost, place: int, report: Report, selected: str) -> doc.Document:
    """Return a device of a mesh, and its part of the selected value."""
    device, value = cost.placement.device(place), found_value(report, selected)[1]
    part = () if value is None else _holds(device, value, report)
    if not selected:
        part = doc.notes("select a value to see which slice this device holds")
    return _device(device, part)


def _device(device: PlacedDevice, part: tuple[doc.Block, ...]) -> doc.Document:
    placed, place = device.placement, device.place
    mesh = placed.mesh
    title = f"device {place}" if not mesh.device_ids else f"place {place}"
    at: list[doc.Piece] = []
    for name, index in zip(mesh.shown.names, mesh.shown.coordinates()[place].tolist(), strict=True):
        at += [*([doc.words(",")] if at else []), doc.axes((name,)), doc.words(str(index))]
    blocks = (doc.paragraph(_where(device), label="location", name="device-where"), *part, *_groups(device))
    return doc.Document(title=doc.words(title, strong=True), lead=(tuple(at),) if at else (), blocks=blocks, mesh=mesh)


def _where(device: PlacedDevice) -> str:
    if device.placement.machine.chip.kind == "cpu":
        return f"the CPU; {_SIMULATED}"
    stand = floor(device.placement)
    node = stand.nodes[stand.node_of[device.place]]
    where = f"one of {len(node.places)} of {node.text}" if stand.grain else node.text
    return where + (f"; JAX's id {device.id}" if device.id != device.place else "")


def _groups(device: PlacedDevice) -> tuple[doc.Table, ...]:
    if device.placement.machine.chip.kind == "cpu":
        return ()
    groups = device_groups(device.placement, device.place)
    heads = ("axis", lambda group: doc.axes((group.axis,))), (doc.wrapped("group"), lambda group: group.text)
    return (doc.Rows(groups, noun="axis", name="device-groups").table(*heads),) if groups else ()


def _holds(device: PlacedDevice, value: Value, report: Report) -> tuple[doc.Paragraph, ...]:
    """Return `x[0:4, :]`; empty for a sharding that the report knows only as text."""
    try:
        own_layout = layout(value.shape, sharding_of(value, report.mesh), report.mesh)
    except ShardvizError:
        return ()
    part = doc.code(f"{value.label or value.name}{slice_text(own_layout, device.place)}")
    return (doc.paragraph(part, doc.words("shard map", selects=("tab", "shards")), label="holds", name="device-holds"),)


def orders_section(cost: StepCost, options: Sequence[Order] | None = None) -> doc.Section:
    """Return the possible device orders, and the time of collectives in each."""
    options = orders(cost) if options is None else options
    by_jax = options[0].communication

    def marks(order: Order) -> Iterator[doc.Piece]:
        if order.now:
            yield doc.words("now", strong=True)
        times = order.communication / by_jax if by_jax else 1.0
        if abs(times - 1) >= 0.005:
            yield doc.words(f"{format_times(times)} as long", quiet=True)

    choices = doc.Rows(options, noun="order", folds="never", name="orders").table(
        (doc.wrapped("order"), lambda order: doc.words(_name(order.key), strong=order.now)),
        (doc.right("collectives in a step"), lambda order: doc.seconds(order.communication, strong=order.now)),
        ("", marks),
        detail=lambda order: doc.notes(*(f"{_name(key)} takes the same time" for key in order.also)),
    )
    lead = placed_words(cost.placement) + (f"; {MAY_DIFFER}" if cost.as_run else "")
    return doc.section("Order of the devices", choices, lead=lead, name="order")


def orders_pane(cost: StepCost, options: Sequence[Order]) -> doc.Document:
    """Return the device orders for the page, where one can be chosen."""
    return doc.Document(blocks=(orders_section(cost, options),), mesh=cost.mesh)


def _name(key: str | tuple[str, str]) -> str:
    return f"{key[0]} and {key[1]} exchanged" if isinstance(key, tuple) else _NAMES[key]

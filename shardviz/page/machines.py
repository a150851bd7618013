"""The machine as the page gets it: its Documents, the pictures that a device is picked on, and the orders' keys."""

from __future__ import annotations

from shardviz.costs.orders import orders
from shardviz.costs.step_cost import StepCost
from shardviz.explorer.cards import Deck
from shardviz.judge.report import Report
from shardviz.page.payload import Json, pane
from shardviz.paint.json import json_of
from shardviz.view.difference import with_links
from shardviz.view.machine_picture import company_picture, machine_picture
from shardviz.view.placement import device_pane, machine_pane, orders_pane, without_machine


def machine_view(cost: StepCost | None, why: str = "", deck: Deck | None = None) -> Json:
    """What each axis rides on, the machine with the mesh on it, and the orders to choose from, the open card told
    against another; without a machine that has links only what to do about it."""
    if cost is None:
        return pane(without_machine(why, "links between them", "machine-why"))
    options = orders(cost)
    choice = {
        "document": json_of(orders_pane(cost, options)),
        "keys": [option.key if isinstance(option.key, str) else list(option.key) for option in options],
        "now": next(place for place, option in enumerate(options) if option.now),
        "listed": cost.mesh.text.partition("devices=")[2].partition(" slices=")[0],
    }
    told = machine_pane(cost) if deck is None else with_links(machine_pane(cost), deck)
    return pane(told, picture=machine_picture(cost.placement).to_json(), orders=choice)


def company_view(cost: StepCost | None, device: int, report: Report, selected: str) -> Json:
    """One device, by its place in the mesh: where it is, what it holds of the selected value, and its groups; empty for
    none."""
    if cost is None or not 0 <= device < cost.mesh.size:
        return {}
    shown = device_pane(cost, device, report, selected)
    return pane(shown, device=device, picture=company_picture(cost.placement, device).to_json())

"""The stages of a collective on a machine: the bytes on each link, and their seconds.

V is the bytes of the full array that a group gathers, reduces or exchanges, N the devices of a group, W1 one link in
one direction. Sources:

- *How to Scale Your Model*, part 3 ("Sharded Matrices"): a ring uses both directions, so all-gather and reduce-scatter
  take V (N-1)/N / (2 W1); several axes of the torus add their bandwidths. An all-reduce is both; an all-to-all takes a
  quarter. Each hop takes at least one hop's time.
- A line (no wraparound): the chip at its end receives everything over one link, so W1 instead of 2 W1 (the book's Pop
  Quiz 2).
- An all-to-all is bound by the bisection: half the devices send half of their data to the other half, V/4 in each
  direction, over 2 links of a ring or 1 of a line, times the chips across. Derived; on one ring it is the book's
  V/(4 x 2 W1).
- Neighbours s links apart share each link with s - 1 other groups. Derived; tests count the messages on each link.
- Between slices (DCN) each chip has its share of its host's bandwidth (part 5, "Scaling Between Pods"). XLA uses
  separate operations within and between slices, one after the other, so their times add up.
- GPUs (part 12): an NVLink domain is a switch, V (N-1)/(N W_gpu), all-to-all V (N-1)/(N^2 W_gpu). Between domains the
  groups of one domain share its egress bandwidth, W_node. Both overlap in pieces, so the slower one counts.

Twisted tori are treated as plain ones. DCN's latency is omitted, because no number for it is published.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shardviz.costs.machine import Machine
from shardviz.costs.routes import Route, exchange_load
from shardviz.errors import TargetError
from shardviz.records.amounts import format_bytes, format_rate, format_seconds, plural

BOOK = "How to Scale Your Model"


@dataclass(frozen=True)
class Term:
    """One lower bound on the time of a stage, by an `ICI link`, `chip` (between the devices of one chip), `DCN`,
    `NVLink`, `network` or `latency`: seconds, the arithmetic with its numbers and where that is from, and the bytes on
    one device that it divides by a rate (0 for latency)."""

    bound: str
    seconds: float
    formula: str
    source: str
    moved: float = 0.0


@dataclass(frozen=True)
class CollectiveStage:
    """The transfers at one time; it takes as long as its largest term."""

    terms: tuple[Term, ...]

    @property
    def largest(self) -> Term:
        """The term that bounds the stage."""
        return max(self.terms, key=lambda term: term.seconds)

    @property
    def seconds(self) -> float:
        """The stage's time."""
        return self.largest.seconds


def stages(
    kind: str, nbytes: float, route: Route, *, groups: np.ndarray, machine: Machine, exact: bool, in_network: bool
) -> tuple[CollectiveStage, ...]:
    """Return the stages of a collective (not of a collective-permute), in order."""
    if machine.chip.kind == "gpu":
        return (_gpu(kind, nbytes, route, machine=machine, exact=exact, in_network=in_network),)
    timed = []
    if route.per_slice > 1:
        inside = nbytes / route.slices if _exchange(kind) else nbytes
        timed.append(_ici(kind, inside, route, groups=groups, machine=machine, exact=exact))
    if route.slices > 1:
        timed.append(_dcn(kind, nbytes, route, machine, exact))
    return tuple(timed)


def _exchange(kind: str) -> bool:
    return kind in ("all-to-all", "ragged-all-to-all")


def _passes(kind: str) -> int:
    """Return the number of passes: an all-reduce is a reduce-scatter and an all-gather."""
    return 2 if kind == "all-reduce" else 1


def _share(kind: str, n: int, exact: bool) -> tuple[float, str]:
    """Return the factor of V that a device receives, and its text."""
    times = "2 x " if _passes(kind) == 2 else ""
    if kind == "collective-broadcast" or not exact:
        return float(_passes(kind)), f"{times}V"
    return _passes(kind) * (n - 1) / n, f"{times}V x {n - 1}/{n}"


def _ici(
    kind: str, nbytes: float, route: Route, *, groups: np.ndarray, machine: Machine, exact: bool
) -> CollectiveStage:
    chip = machine.chip
    link = chip.needs("ici_link_bytes_per_s")
    sharing = chip.devices_per_chip // route.on_chip  # groups that use the links of one chip
    terms: list[Term] = []
    if route.chips > 1 and (not route.regular or (_exchange(kind) and not route.even)):
        terms.append(_uneven(kind, nbytes, route, groups=groups, machine=machine, exact=exact))
    elif route.chips > 1 and _exchange(kind):
        terms.append(_bisection(nbytes, route, link / sharing, exact))
    elif route.chips > 1:
        width = sum(leg.links for leg in route.legs)
        factor, text = _share(kind, route.chips, exact or not route.ring)
        over = ", ".join(map(str, route.legs))
        shared = f" / {sharing} (devices of a chip)" if sharing > 1 else ""
        numbers = f"{text.replace('V', format_bytes(nbytes))} / ({width:g} x {format_rate(link)}{shared})"
        seconds = factor * nbytes * sharing / (width * link)
        source = f"{BOOK}, part 3" + ("" if route.ring else ", Pop Quiz 2 (a line)")
        terms.append(Term("ICI link", seconds, f"{text} / W = {numbers}; {over}", source, factor * nbytes))
    if route.on_chip > 1:
        terms.append(_on_chip(kind, nbytes, route, machine, exact))
    hops = _hops(kind, route)
    if hops and chip.hop_seconds:
        text = f"{plural(hops, 'hop')} x {format_seconds(chip.hop_seconds)}"
        terms.append(Term("latency", hops * chip.hop_seconds, text, f"{BOOK}, part 3"))
    return CollectiveStage(tuple(terms))


def _hops(kind: str, route: Route) -> int:
    if route.regular:
        return _passes(kind) * sum(leg.hops for leg in route.legs)
    return _passes(kind) * (route.per_slice // 2) * route.hops


def _bisection(nbytes: float, route: Route, link: float, exact: bool) -> Term:
    """Return an all-to-all's term: the axis of the torus whose bisection carries the most per link."""
    worst, text, moved = 0.0, "", 0.0
    for leg in route.legs:
        across = (leg.size // 2) * (leg.size - leg.size // 2) / leg.size**2 if exact else 0.25
        links = route.chips / leg.size * leg.links
        seconds = nbytes * across / (links * link)
        if seconds > worst:
            numbers = f"{format_bytes(nbytes)} x {across:.4g} / ({links:g} x {format_rate(link)})"
            worst, moved = seconds, nbytes * across
            text = f"V x {across:.4g} / (links W1) = {numbers}; through the middle of the {leg}"
    return Term("ICI link", worst, text, f"bisection; on one ring {BOOK}, part 3", moved)


def _uneven(kind: str, nbytes: float, route: Route, *, groups: np.ndarray, machine: Machine, exact: bool) -> Term:
    """Return the term of groups that are no block of the torus, from the messages of all groups on each link."""
    link, n = machine.chip.needs("ici_link_bytes_per_s"), route.per_slice
    if _exchange(kind):
        load = exchange_load(machine, groups)
        if load is None:
            raise TargetError(
                f"{kind} over {groups.shape[0]} groups of {groups.shape[1]} devices that are no block of the torus: "
                "too many messages to count; give the mesh an order in which its axes lie along the torus"
            )
        moved = nbytes / n**2 * load[0]
        seconds = moved / link
        text = f"V/N^2 x {load[0]} messages on the busiest link / W1"
    else:
        factor, share = _share(kind, n, exact)
        moved = factor * nbytes
        seconds = moved * route.load / (2 * link)
        text = f"{share} / (2 W1 / {route.load} transfers on the busiest link)"
    numbers = f"V = {format_bytes(nbytes)}, W1 = {format_rate(link)}"
    return Term("ICI link", seconds, f"{text}; {numbers}", "counted over the links of the torus", moved)


def _on_chip(kind: str, nbytes: float, route: Route, machine: Machine, exact: bool) -> Term:
    """Return the term between the devices of one chip; an unknown link is taken as fast as their memory."""
    chip, n = machine.chip, route.on_chip
    width = chip.core_link_bytes_per_s or chip.needs("hbm_bytes_per_s")
    what = "between the devices of a chip" if chip.core_link_bytes_per_s else "through the chip's memory"
    factor, text = _share(kind, n, exact)
    if _exchange(kind):
        factor, text = factor / (n * route.chips), f"{text} / {n * route.chips}"
    formula = f"{text} / W = {text.replace('V', format_bytes(nbytes))} / {format_rate(width)} {what}"
    return Term("chip", factor * nbytes / width, formula, chip.source("core_link_bytes_per_s"), factor * nbytes)


def _dcn(kind: str, nbytes: float, route: Route, machine: Machine, exact: bool) -> CollectiveStage:
    """Return the term between slices: every chip of the group sends over its share of its host's bandwidth."""
    chip = machine.chip
    each = chip.needs("dcn_bytes_per_s") / chip.devices_per_chip
    many, inside = route.slices, route.per_slice
    factor, text = _share(kind, many, exact)
    if _exchange(kind):
        factor, text = factor / many, f"{text} / {many}"
    formula = (
        f"{text} / (devices of the group in a slice x W_dcn) = {text.replace('V', format_bytes(nbytes))} / "
        f"({inside} x {format_rate(each)}); {many} slices"
    )
    moved = factor * nbytes / inside
    return CollectiveStage((Term("DCN", moved / each, formula, f"{BOOK}, part 5, Scaling Between Pods", moved),))


def _gpu(kind: str, nbytes: float, route: Route, *, machine: Machine, exact: bool, in_network: bool) -> CollectiveStage:
    chip, n = machine.chip, route.size
    inside, domains = route.per_domain, route.domains
    terms: list[Term] = []
    if inside > 1:
        width = chip.needs("nvlink_bytes_per_s")
        factor, text = _share(kind, inside, exact)
        if kind == "all-reduce" and in_network:
            factor, text = 1.0, "V"  # SHARP: each GPU sends and gets the array once
        if _exchange(kind):  # to each of the others in the domain 1/N of what a GPU has, 1/N of the array
            others = inside - 1 if exact else inside
            factor, text = others / n**2, f"V x {others}/{n}^2"
        formula = f"{text} / W_gpu = {text.replace('V', format_bytes(nbytes))} / {format_rate(width)}"
        moved, source = factor * nbytes, f"{BOOK}, part 12, Intra-node"
        terms.append(Term("NVLink", moved / width, formula, source, moved))
    if domains > 1:
        # a network card for each GPU: a domain of fewer GPUs has less
        width = chip.needs("node_egress_bytes_per_s") * machine.domain_size / chip.domain_size
        sharing = machine.domain_size // inside
        factor, text = _share(kind, domains, exact)
        if kind == "all-reduce" and in_network:
            factor, text = 1.0, "V"
        if _exchange(kind):
            factor, text = factor / domains, f"{text} / {domains}"
        shared = f" / {sharing} groups" if sharing > 1 else ""
        numbers = f"{text.replace('V', format_bytes(nbytes))} / ({format_rate(width)}{shared})"
        formula = f"{text} / W_node = {numbers}; {domains} NVLink domains"
        moved, source = factor * nbytes, f"{BOOK}, part 12, Cross-node"
        terms.append(Term("network", moved * sharing / width, formula, source, moved))
    steps = [math.ceil(math.log2(count)) if not _exchange(kind) else int(count > 1) for count in (inside, domains)]
    latency = _passes(kind) * (steps[0] * chip.hop_seconds + steps[1] * chip.network_hop_seconds)
    if latency:
        one, other = format_seconds(chip.hop_seconds), format_seconds(chip.network_hop_seconds)
        hops = f"{steps[0]} x {one} + {steps[1]} x {other}"
        text = f"2 x ({hops})" if _passes(kind) == 2 else hops
        terms.append(Term("latency", latency, f"{text} up a tree", f"{BOOK}, part 12; {chip.source('hop_seconds')}"))
    return CollectiveStage(tuple(terms))

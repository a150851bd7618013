"""The time of a collective on a machine, and its formula with numbers.

>>> time = collective_seconds("all-gather", 2048 * 8192 * 2, "Y", "X=8,Y=4", "tpu v5e:4x8", exact=False)
>>> print(time)
all-gather over Y of 33.6 MB: 559 µs, bound by the ICI link
  ICI link   559 µs  V x 3/4 / W = 33.6 MB x 3/4 / (1 x 45.0 GB/s); line of 4 along x
  latency   3.00 µs  3 hops x 1.00 µs

This is `Pop Quiz 2` of *How to Scale Your Model*, part 3. `stages` names the source of each formula.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardviz.caching import cached_property
from shardviz.costs.machine import Machine
from shardviz.costs.placement import Placement
from shardviz.costs.routes import Route, link_load, route
from shardviz.costs.stages import BOOK, CollectiveStage, Term, stages
from shardviz.errors import ShardvizError, TargetError
from shardviz.notation import Axis, DeviceMesh
from shardviz.notation.groups import parse_groups, parse_pairs
from shardviz.notation.spec import axis_text
from shardviz.records import KINDS, Collective
from shardviz.records.amounts import format_bytes, format_rate, format_seconds, plural


@dataclass(frozen=True, kw_only=True)
class CollectiveTime:
    """The time of one run of a collective.

    Attributes:
        kind: the collective.
        nbytes: V, the bytes of the full array that a group gathers, reduces or exchanges.
        axes: the mesh axes of its groups; None if no axes express them.
        inputs: the numbers used: `V`, `N`, and the machine's.
        stages: its stages, one after the other; each takes as long as its largest term.
        route: the links between the members of its groups.
    """

    kind: str
    nbytes: float
    axes: tuple[Axis, ...] | None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    stages: tuple[CollectiveStage, ...] = ()
    route: Route | None = None

    @cached_property
    def seconds(self) -> float:
        """The time."""
        return sum((stage.seconds for stage in self.stages), 0.0)

    @property
    def bound(self) -> str:
        """The bottleneck: `ICI link`, `chip`, `DCN`, `NVLink`, `network`, `latency`, or `nothing` for one device."""
        return max(self.stages, key=lambda stage: stage.seconds).largest.bound if self.seconds else "nothing"

    @cached_property
    def formula(self) -> str:
        """The formula of the bounding term with its numbers, and its source in brackets."""
        if not self.stages:
            return f"{'no bytes' if self.inputs['N'] > 1 else 'one device'}: nothing moves"
        largest = [stage.largest for stage in self.stages]
        each = [f"[{term.formula}] {format_seconds(term.seconds)}" for term in largest]
        sums = f"{largest[0].formula if len(each) == 1 else ' + '.join(each)} = {format_seconds(self.seconds)}"
        text = f"{sums} [{'; '.join(dict.fromkeys(term.source for term in largest))}]"
        return text + ("; at most, as an all-to-all of all rows" if self.kind == "ragged-all-to-all" else "")

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every bound that was computed, stage by stage."""
        return tuple(term for stage in self.stages for term in stage.terms)

    @property
    def moved(self) -> float:
        """Bytes of one device that the formula divides by a rate, in all stages: of a gather V (N-1)/N."""
        return sum(stage.largest.moved for stage in self.stages)

    @property
    def bytes_per_s(self) -> float | None:
        """The rate at which they move, so that `moved / bytes_per_s` is `seconds`; None where no bytes bound the time.

        For one stage this is the W of its formula; for several, the rate over all of them in sequence.
        """
        return self.moved / self.seconds if all(stage.largest.moved for stage in self.stages) and self.seconds else None

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the formulas are from."""
        return tuple(dict.fromkeys(term.source for term in self.terms))

    def __str__(self) -> str:
        over = f" over {', '.join(map(axis_text, self.axes))}" if self.axes else ""
        head = f"{self.kind}{over} of {format_bytes(self.nbytes)}: {format_seconds(self.seconds)}, bound by "
        head += "nothing" if self.bound == "nothing" else f"the {self.bound}" if "link" in self.bound else self.bound
        times = [format_seconds(term.seconds) for term in self.terms]
        wide = (max(map(len, column), default=0) for column in ([t.bound for t in self.terms], times))
        first, second = wide
        rows = [
            f"  {term.bound:<{first}}  {time:>{second}}  {term.formula}"
            for term, time in zip(self.terms, times, strict=True)
        ]
        return "\n".join([head, *rows])


def collective_seconds(
    kind: str,
    nbytes: float,
    axes: str | Axis | Sequence[Axis],
    mesh: Any,
    target: str | Machine,
    *,
    exact: bool = True,
    in_network: bool = False,
) -> CollectiveTime:
    """Return the time of a collective.

    Args:
        kind: `all-gather`, `reduce-scatter`, `all-reduce`, `all-to-all`, `ragged-all-to-all` (as an all-to-all, its
            upper bound), `collective-permute` (each device to the next along the axes) or `collective-broadcast`.
        nbytes: V, the bytes of the full array that one group gathers, reduces or exchanges: the global array divided by
            the axes outside the collective. For a permute, the bytes that all devices of a group send.
        axes: the mesh axis or axes that it runs over; a part of an axis as (name, sizes before it, size).
        mesh: the mesh: a JAX mesh, a dict, text such as `"data=8,model=4"`, or a `Placement`. A mesh without its own
            device order gets the order that JAX's `mesh_utils` would choose.
        target: the machine, such as `tpu v5p:4x4x4`, `v5p` or `v5p-64`; see `costs.machine.machine_of`.
        exact: False drops the factor (N-1)/N on rings and switches, as *How to Scale Your Model* does.
        in_network: whether GPUs' switches do the sums (SHARP), so that an all-reduce sends the array once.

    Returns:
        The time, with its formula.

    Raises:
        TargetError: for an unknown machine, a machine of another size, or one without links (`cpu`).
        MeshError: if the mesh has no such axis.
        ShardvizError: for an unknown kind, or bytes below 0.

    Examples:
        >>> import shardviz as sv
        >>> time = sv.collective_seconds("all-gather", 32e6, "model", "data=2,model=4", "tpu v5e:2x4")
        >>> f"{time.seconds:.2e}", time.bound
        ('2.67e-04', 'ICI link')
    """
    _check(kind, nbytes)
    if axes is None:
        raise ShardvizError("axes None: use group_seconds for groups that are not a product of mesh axes")
    if isinstance(axes, str) or (len(axes) == 3 and isinstance(axes[1], int)):
        over: tuple[Axis, ...] = (axes,)  # type: ignore[assignment]
    else:
        over = tuple(axes)  # type: ignore[arg-type]
    place = _linked(mesh, target)
    groups = place.groups(over)
    return place.once(
        (kind, float(nbytes), over, exact, in_network),
        lambda: _time(
            kind,
            float(nbytes),
            over,
            groups=groups,
            over=place.route(over),
            machine=place.machine,
            exact=exact,
            in_network=in_network,
        ),
    )


def group_seconds(
    kind: str, nbytes: float, groups: np.ndarray, mesh: Any, target: str | Machine, *, exact: bool = True
) -> CollectiveTime:
    """Return the time as `collective_seconds`, for groups given as positions in the mesh: integers, groups x
    members."""
    _check(kind, nbytes)
    place = _linked(mesh, target)
    members = np.asarray(place.order)[groups]
    return _time(
        kind,
        float(nbytes),
        None,
        groups=members,
        over=route(place.machine, members),
        machine=place.machine,
        exact=exact,
        in_network=False,
    )


def _linked(mesh: Any, target: str | Machine) -> Placement:
    """Return a mesh on a machine. Raises TargetError for `cpu`, which has no links."""
    place = Placement.of(mesh, target)
    if place.machine.chip.kind == "cpu":
        place.machine.chip.needs("ici_link_bytes_per_s")
    return place


def _check(kind: str, nbytes: float) -> None:
    if kind not in KINDS:
        raise ShardvizError(f"kind {kind!r}: there is no such collective; there are {', '.join(KINDS)}")
    if not isinstance(nbytes, numbers.Real) or not nbytes >= 0 or not math.isfinite(nbytes):
        raise ShardvizError(f"nbytes {nbytes!r}: expected 0 bytes or more")


def _time(
    kind: str,
    nbytes: float,
    axes: tuple[Axis, ...] | None,
    *,
    groups: np.ndarray,
    over: Route,
    machine: Machine,
    exact: bool,
    in_network: bool,
) -> CollectiveTime:
    inputs: dict[str, Any] = {"V": nbytes, "N": over.size, "groups": len(groups), "links": str(over)}
    parts: tuple[CollectiveStage, ...] = ()
    if over.size > 1 and nbytes:
        chip = machine.chip
        rates = ("ici_link_bytes_per_s", "dcn_bytes_per_s", "nvlink_bytes_per_s", "node_egress_bytes_per_s")
        inputs |= {name: value for name in (*rates, "hop_seconds") if (value := getattr(chip, name))}
        if kind == "collective-permute":
            following = np.roll(groups, -1, axis=1)
            parts = (_messages(nbytes / over.size, groups.ravel(), following.ravel(), machine),)
        else:
            parts = stages(kind, nbytes, over, groups=groups, machine=machine, exact=exact, in_network=in_network)
    return CollectiveTime(kind=kind, nbytes=nbytes, axes=axes, inputs=inputs, stages=parts, route=over)


def _messages(each: float, sources: np.ndarray, targets: np.ndarray, machine: Machine) -> CollectiveStage:
    """Return the stage of simultaneous messages of `each` bytes, by the load of the busiest link, chip or domain."""
    chip, terms = machine.chip, []

    def passes(bound: str, width: float, most: int, what: str, source: str) -> None:
        if most:
            numbers = f"{format_bytes(each)} x {most} / {format_rate(width)}"
            text = f"{numbers}; {plural(most, 'message')} {what}"
            terms.append(Term(bound, each * most / width, text, source, each * most))

    def waits(seconds: float, hops: int, source: str) -> None:
        if hops and seconds:
            text = f"{plural(hops, 'hop')} x {format_seconds(seconds)}"
            terms.append(Term("latency", hops * seconds, text, source))

    moved = sources != targets
    sources, targets = sources[moved], targets[moved]
    if chip.kind == "gpu":
        part = f"{BOOK}, part 12"
        domain = machine.nvlink_domains()
        away = domain[sources] != domain[targets]
        most = _most(sources[~away], targets[~away])
        passes("NVLink", chip.needs("nvlink_bytes_per_s"), most, "of a GPU", part)
        if away.any():
            width = chip.needs("node_egress_bytes_per_s") * machine.domain_size / chip.domain_size
            most = _most(domain[sources[away]], domain[targets[away]])
            passes("network", width, most, "out of an NVLink domain", part)
        latency = chip.network_hop_seconds if away.any() else chip.hop_seconds
        waits(latency, min(1, len(sources)), chip.source("hop_seconds"))
    else:
        away = machine.slices()[sources] != machine.slices()[targets]
        load, hops = link_load(machine, sources, targets)
        width = chip.needs("ici_link_bytes_per_s")
        passes("ICI link", width, load, "on the busiest link", f"{BOOK}, part 2, Question 5")
        beside = ~away & (machine.coords()[sources, :3] == machine.coords()[targets, :3]).all(axis=1)
        if beside.any():
            width = chip.core_link_bytes_per_s or chip.needs("hbm_bytes_per_s")
            passes("chip", width, 1, "between the devices of a chip", chip.source("core_link_bytes_per_s"))
        if away.any():
            width = chip.needs("dcn_bytes_per_s") / chip.devices_per_chip
            most = _most(sources[away], targets[away])
            passes("DCN", width, most, "of a device to other slices", f"{BOOK}, part 5")
        waits(chip.hop_seconds, hops, f"{BOOK}, part 3")
    return CollectiveStage(tuple(terms) or (Term("latency", 0.0, "nothing moves", ""),))


def _most(sources: np.ndarray, targets: np.ndarray) -> int:
    """Return the most messages that one member sends or receives."""
    if not len(sources):
        return 0
    return int(max(np.bincount(sources).max(), np.bincount(targets).max()))


def whole_bytes(collective: Collective, group_size: int | None = None) -> float | None:
    """Return V of a program's collective, from its operand and result on one device; None if unknown."""
    kind, size = collective.kind, collective.group_size if group_size is None else group_size
    if kind == "all-gather":
        return collective.result_bytes
    if kind == "all-reduce":  # first what goes in is scattered, then what comes out is gathered, which may be narrower
        return (collective.operand_bytes + collective.result_bytes) / 2
    if kind in ("reduce-scatter", "collective-broadcast"):
        return collective.operand_bytes
    return None if size is None else collective.operand_bytes * size


def with_seconds(collective: Collective, mesh: Any, target: str | Machine) -> Collective:
    """Return a program's collective with `seconds` and `formula` of one run on a machine, as of `seconds_of`."""
    seconds, formula = seconds_of(collective, mesh, target)
    return dataclasses.replace(collective, seconds=seconds, formula=formula)


def seconds_of(collective: Collective, mesh: Any, target: str | Machine) -> tuple[float | None, str]:
    """Return the seconds of one run of a program's collective, and their formula; None and why, if unknown."""
    try:
        timed = time_of(collective, mesh, target)
    except ShardvizError as error:
        return None, f"not known: {error}"
    return timed.seconds, timed.formula


def time_of(collective: Collective, mesh: Any, target: str | Machine) -> CollectiveTime:
    """Return the time of one run of a program's collective. Raises ShardvizError if it is unknown."""
    place = _linked(mesh, target)
    kind, axes, text = collective.kind, collective.axes, collective.groups
    if kind == "collective-permute" and text.startswith("{{"):
        return place.once((text, collective.operand_bytes, axes), lambda: _pairs(collective, place))
    if axes is None and not text:
        raise TargetError("its groups are no product of mesh axes, and the level that it is from has no groups")
    if axes is not None:
        whole = whole_bytes(collective, place.groups(axes).shape[1])
        assert whole is not None
        return collective_seconds(kind, whole, axes, place, place.machine)
    key = kind, text, collective.operand_bytes, collective.result_bytes
    return place.once(key, lambda: _of_groups(collective, place))


def _of_groups(collective: Collective, place: Placement) -> CollectiveTime:
    groups = parse_groups(collective.groups, place.mesh.size)
    if (groups < 0).any():  # of unequal sizes: the longest
        sizes = (groups >= 0).sum(axis=1)
        groups = groups[sizes == sizes.max(), : sizes.max()]
    whole = whole_bytes(collective, groups.shape[1])
    assert whole is not None
    return group_seconds(collective.kind, whole, groups, place, place.machine)


def _pairs(collective: Collective, place: Placement) -> CollectiveTime:
    """Return the time of a permute from its own (sender, receiver) pairs."""
    pairs = np.asarray(place.order)[parse_pairs(collective.groups)]
    stage = _messages(collective.operand_bytes, pairs[:, 0], pairs[:, 1], place.machine)
    inputs = {"pairs": len(pairs), "bytes of a pair": collective.operand_bytes}
    whole = collective.operand_bytes * len(pairs)
    return CollectiveTime(kind=collective.kind, nbytes=whole, axes=collective.axes, inputs=inputs, stages=(stage,))


def ring_transfers(c: Collective, mesh: DeviceMesh) -> tuple[float, float]:
    """Return the bytes that a device puts on the links in a run, and the number of steps, on rings of the mesh's axes.

    A permute's bytes count once for each hop. Other collectives go round their ring.
    """
    if c.kind == "collective-permute":
        coords = np.stack(np.unravel_index(parse_pairs(c.groups), mesh.sizes), axis=-1)
        ahead = np.abs(coords[:, 1] - coords[:, 0])
        hops = np.minimum(ahead, np.array(mesh.sizes) - ahead).sum(axis=1)
        return c.operand_bytes * float(hops.sum()) / mesh.size, float(hops.max(initial=0))
    others = (c.group_size or mesh.size) - 1
    return c.sent_bytes, float(2 * others if c.kind == "all-reduce" else others)

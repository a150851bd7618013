"""A machine: a number of chips and their links. `tpu v5p:8x8x8`, `tpu v5e:4x4*2`, `gpu h100:32x8`, `cpu`.

>>> machine = Machine.of("tpu v5e:8x16*2")
>>> machine
Machine('tpu v5e:8x16*2')
>>> print(machine)
tpu v5e:8x16*2: 256 chips in 2 slices of 8x16 (y wraps around), 64 hosts
>>> machine.size, machine.wrap, machine.coords()[1].tolist(), machine.slices()[-1].item()
(256, (False, True, False), [1, 0, 0, 0], 1)
>>> Machine.of("v5p-64").text, Machine.of("a3-highgpu-8g*4").text       # clouds' names: see `costs.cloud`
('tpu v5p:2x4x4', 'gpu h100:4x8')
>>> Machine.of("gpu gb200:2x72").domains, Machine.of("gpu h100:32x8").domains
(2, 32)

Devices are in JAX's order: slice by slice, host by host, on a host x before y before z, then the devices of one chip
(`jax.experimental.topologies` on libtpu 0.0.50).

All machines of one chip with a number of devices, and the same chip with another number:

>>> [machine.text for machine in topologies("v5p", 64)]
['tpu v5p:4x4x4', 'tpu v5p:2x4x4*2', 'tpu v5p:2x2x4*4', 'tpu v5p:2x2x2*8', 'tpu v5p:2x2x1*16']
>>> grown(Machine.of("tpu v5p:4x4x4"), 128).text, grown(Machine.of("gpu h100:8x8"), 128).text
('tpu v5p:4x4x8', 'gpu h100:16x8')
>>> print(grown(Machine.of("tpu v5p:4x4x4"), 6), sizes_near("v5p", 6))
None (4, 8)
>>> machine_of("v5p", 64).text          # a chip alone: as many as the mesh has devices
'tpu v5p:4x4x4'

The target `attached` is the devices that JAX sees in this process:

>>> from types import SimpleNamespace as Device
>>> chip = lambda x, y: Device(platform="tpu", device_kind="TPU v5 lite", coords=(x, y, 0), slice_index=0)
>>> target_of([chip(x, y) for x in range(4) for y in range(2)])
'tpu v5e:4x2'
>>> gpu = lambda host: Device(platform="gpu", device_kind="NVIDIA H100 80GB HBM3", process_index=host)
>>> target_of([gpu(host) for host in (0, 0, 1, 1)])
'gpu h100:2x2'
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import Any, cast

import numpy as np

from shardviz.caching import cached_property
from shardviz.costs.chips import Chip, chips
from shardviz.costs.chips import chip as named
from shardviz.costs.cloud import CloudMachine, cloud_machine
from shardviz.errors import TargetError, excerpt
from shardviz.notation.bounds import MOST_NAME, check_size

_TEXT = re.compile(
    r"(?:(tpu|gpu|cpu)(?:\s+|$))?(?:([a-z][^:\s*]*)\s*(?::\s*|$))?([0-9]{1,9}(?:x[0-9]{1,9})*)?(?:\*([0-9]{1,9}))?$",
    re.IGNORECASE,
)
_CHIP_ALONE = re.compile(r"(?:(?P<kind>tpu|gpu)\s+)?(?P<name>[a-z]\w*):?", re.IGNORECASE)
_EXAMPLES = "'tpu v5p:4x4x4', 'tpu v5e:4x4*2' (two slices), 'gpu h100:32x8' (hosts x GPUs) or 'cpu'"
_MOST_DEVICES = 1 << 20
_FARTHEST = 1 << 16  # devices: how far above a size another one is looked for
_HOST = 4  # chips: no slice of several is smaller


@dataclass(frozen=True)
class Machine:
    """A number of chips and the links between them.

    Attributes:
        chip: the chip.
        topology: TPU: the chips of one slice along x, y and, where the torus has three axes, z. GPU: hosts, and GPUs
            on each. Empty for `cpu`.
        num_slices: TPU slices, joined by the data centre's network (DCN).
        wrap: whether each of the axes x, y, z wraps around; left empty it follows from the chip.

    Examples:
        >>> import shardviz as sv
        >>> machine = sv.Machine.of("tpu v5e:8x16")
        >>> machine.num_chips, machine.wrap
        (128, (False, True, False))
    """

    chip: Chip
    topology: tuple[int, ...] = ()
    num_slices: int = 1
    wrap: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.chip, Chip):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TargetError(f"a machine needs a shardviz.Chip, not {excerpt(repr(self.chip))}")
        for name in ("topology", "wrap"):
            if isinstance(each := getattr(self, name), str) or not isinstance(each, Iterable):
                raise TargetError(f"machine of {self.chip.name}: {name} is a tuple such as (4, 4), not {each!r}")
        for n in (*self.topology, self.num_slices):
            if not isinstance(n, Integral) or isinstance(n, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TargetError(f"machine of {self.chip.name}: expected whole numbers of chips and slices, not {n!r}")
        object.__setattr__(self, "topology", tuple(int(n) for n in self.topology))
        check = {"tpu": _check_tpu, "gpu": _check_gpu, "cpu": _check_cpu}[self.chip.kind]
        check(self)
        if self.size > _MOST_DEVICES:
            raise TargetError(f"target {self.text!r}: {self.size} devices; at most {_MOST_DEVICES} are supported")
        wrap = tuple(bool(w) for w in self.wrap) or _wrap(self)
        object.__setattr__(self, "wrap", (wrap + (False,) * 3)[:3] if self.chip.kind == "tpu" else ())

    @classmethod
    def of(cls, target: str | Machine, chip: Chip | None = None) -> Machine:
        """Read a machine from a target's text; a `Machine` is returned unchanged.

        Args:
            target: such as `tpu v5p:8x8x8`. The kind may be omitted, and with `chip` the chip's name too. Or a cloud's
                name, such as `v5p-64` or `a3-highgpu-8g`; see `costs.cloud`.
            chip: a chip to use instead of the one that the text names.

        Raises:
            TargetError: for an unknown chip, or a topology that the chip does not have; the message lists those that
                exist.
        """
        if isinstance(target, Machine):
            return target
        if isinstance(target, Chip):
            sizes = (4,) * target.ici_axes if target.kind == "tpu" else (2, target.domain_size)
            raise TargetError(
                f"target Chip({target.name!r}): how many, and how joined? Give a shardviz.Machine(chip, {sizes}), say"
            )
        text = str(target).strip()
        check_size(text, MOST_NAME, f"target {excerpt(text)!r}", "characters", TargetError)
        if chip is None and (cloud := cloud_machine(text)) is not None:
            return _of_cloud(text, cloud)
        match = _TEXT.match(text)
        if match is None or not text:
            raise TargetError(f"target {excerpt(str(target))!r}: expected {_EXAMPLES}")
        kind, name, topology, slices = match.groups()
        if not isinstance(chip, Chip | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TargetError(f"chip: expected a shardviz.Chip, not {excerpt(repr(chip))}")
        kind = kind.lower() if kind else None
        if chip is None:
            if name is None and kind != "cpu":
                raise TargetError(f"target {target!r}: which chip, and how many? Expected {_EXAMPLES}")
            chip = named(name or "cpu")
        if kind is not None and kind != chip.kind:
            raise TargetError(f"target {target!r}: {chip.name} is a {chip.kind}; write '{chip.kind} {chip.name}:...'")
        if topology is None and chip.kind != "cpu":
            shape = "x".join(["4"] * chip.ici_axes) if chip.kind == "tpu" else f"2x{chip.domain_size}"
            raise TargetError(
                f"target {target!r}: how many? Give {chip.name}'s topology, such as '{chip.kind} {chip.name}:{shape}'"
            )
        sizes = tuple(int(n) for n in topology.split("x")) if topology else ()
        return cls(chip, sizes, int(slices) if slices else 1)

    @property
    def text(self) -> str:
        """The target's text, which `Machine.of` reads back where the chip is one of `chips.toml`."""
        if self.chip.kind == "cpu":
            return "cpu"
        slices = f"*{self.num_slices}" if self.num_slices > 1 else ""
        return f"{self.chip.kind} {self.chip.name}:{'x'.join(map(str, self.topology))}{slices}"

    def __repr__(self) -> str:
        return f"Machine({self.text!r})"

    def __str__(self) -> str:
        if self.chip.kind == "cpu":
            return "cpu: simulated devices, with no links and no speed"
        if self.chip.kind == "gpu":
            inside = f"{self.domains} NVLink domain{'s' * (self.domains > 1)} of {self.domain_size}"
            gpus, hosts = (f"{n} {what}{'s' * (n > 1)}" for n, what in ((self.size, "GPU"), (self.hosts, "host")))
            return f"{self.text}: {gpus} in {inside}, {hosts}"
        shape = "x".join(map(str, self.topology))
        round_ = ", ".join(axis for axis, wraps in zip("xyz", self.wrap, strict=True) if wraps)
        ways = f"{round_} wrap{'s' * (len(round_) == 1)} around" if round_ else "no axis wraps around"
        slices = f"in {self.num_slices} slices of {shape}" if self.num_slices > 1 else f"in a slice of {shape}"
        devices = f" ({self.size} devices)" if self.chip.devices_per_chip > 1 else ""
        hosts = f"{self.hosts} host{'s' * (self.hosts > 1)}"
        return f"{self.text}: {self.num_chips} chip{'s' * (self.num_chips > 1)}{devices} {slices} ({ways}), {hosts}"

    @property
    def num_chips(self) -> int:
        """The number of chips; 0 for `cpu`, which has as many devices as one asks for."""
        return math.prod(self.topology) * self.num_slices if self.topology else 0

    @property
    def size(self) -> int:
        """The number of JAX devices; 0 for `cpu`."""
        return self.num_chips * self.chip.devices_per_chip

    @property
    def usable_bytes(self) -> float | None:
        """Bytes of one device's memory that a program may use; None if not known."""
        usable = self.chip.hbm_usable_bytes or self.chip.hbm_bytes
        return None if usable is None else usable / self.chip.devices_per_chip

    @property
    def default_mesh(self) -> dict[str, int]:
        """Mesh axes for a plan without a mesh: `model` over the last axis of the torus or the GPUs of a host, and
        `data` over the rest; only `data` if there is no rest. Empty for `cpu`.

        >>> Machine.of("tpu v5e:4x8").default_mesh, Machine.of("gpu h100:1x8").default_mesh
        ({'data': 4, 'model': 8}, {'data': 8})
        """
        if self.chip.kind == "cpu":
            return {}
        model = next((n for n in reversed(self.topology) if n > 1), 1)
        data = self.size // model
        return {"data": data, "model": model} if data > 1 else {"data": model}

    @property
    def hosts(self) -> int:
        if self.chip.kind == "gpu":
            return self.topology[0]
        return int(self.processes()[-1]) + 1 if self.topology else 1

    @property
    def domain_size(self) -> int:
        """The GPUs in one NVLink domain of this machine."""
        return math.prod(self.topology) // self.domains if self.chip.kind == "gpu" else 1

    @property
    def domains(self) -> int:
        """The number of NVLink domains: the hosts, or more than one host where the chip's domain is that large."""
        if self.chip.kind != "gpu":
            return 1
        hosts, per_host = self.topology
        together = self.chip.domain_size // per_host if self.chip.domain_spans_hosts else 1
        return -(-hosts // together)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The chips of one slice along x, y and z."""
        x, y, z = (*self.topology, 1, 1, 1)[:3]
        return x, y, z

    def coords(self) -> np.ndarray:
        """Return the coordinates of each device: integers, device x (x, y, z, device on its chip), read only. TPU
        only."""
        return self._table[0]

    def slices(self) -> np.ndarray:
        """Return the slice of each device."""
        return self._table[1]

    def processes(self) -> np.ndarray:
        """Return the process (host) of each device."""
        return self._table[2]

    def ids(self) -> np.ndarray:
        """Return JAX's id of each device: x first within a slice; several slices begin at 100000, 200000, ..."""
        return self._table[3]

    def nvlink_domains(self) -> np.ndarray:
        """Return the NVLink domain of each device; all 0 for TPUs."""
        return np.arange(self.size) // max(1, self.domain_size) if self.chip.kind == "gpu" else np.zeros(self.size, int)

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        if self.chip.kind == "tpu":
            return _tpu_table(self.shape, self.num_slices, self.chip.devices_per_chip, self.chip.host_bounds)
        place = np.arange(self.size)
        per_host = self.topology[1] if self.topology else 1
        return np.zeros((self.size, 4), int), np.zeros(self.size, int), place // per_host, place


@lru_cache(maxsize=32)
def _tpu_table(
    shape: tuple[int, int, int], slices: int, per_chip: int, bounds: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    bounds = tuple(min(n, b) for n, b in zip(shape, bounds, strict=True))  # type: ignore[assignment]
    grid = tuple(n // b for n, b in zip(shape, bounds, strict=True))
    # z, y, x of the host, then z, y, x on the host, then the device on its chip: the last runs fastest
    runs = np.indices((grid[2], grid[1], grid[0], bounds[2], bounds[1], bounds[0], per_chip)).reshape(7, -1)
    xyz = [runs[2 - axis] * bounds[axis] + runs[5 - axis] for axis in range(3)]
    one = np.stack([*xyz, runs[6]], axis=1)
    host = (runs[0] * grid[1] + runs[1]) * grid[0] + runs[2]
    ident = ((one[:, 2] * shape[1] + one[:, 1]) * shape[0] + one[:, 0]) * per_chip + one[:, 3]
    which = np.repeat(np.arange(slices), len(one))
    ids = np.tile(ident, slices) + (100000 * (which + 1) if slices > 1 else 0)
    tables = np.tile(one, (slices, 1)), which, np.tile(host, slices) + which * math.prod(grid), ids
    for table in tables:
        table.setflags(write=False)
    return tables


def _wrap(machine: Machine) -> tuple[bool, ...]:
    """Return which axes wrap around: every axis if the slice consists of full cubes; for v5e and v6e an axis of 16 (How
    to Scale Your Model, part 2; MaxText's `accelerator_to_spec_map.py`)."""
    sizes, of = machine.topology, machine.chip
    if of.cube:
        return (all(n % of.cube == 0 for n in sizes),) * len(sizes)
    return tuple(n == of.wraps_at for n in sizes)


def _check_tpu(machine: Machine) -> None:
    of, sizes = machine.chip, machine.topology
    shape = "x".join(map(str, sizes))
    if machine.num_slices < 1:
        raise TargetError(f"target {machine.text!r}: the number of slices must be 1 or more, not {machine.num_slices}")
    if len(sizes) != of.ici_axes or min(sizes) < 1:
        example = "x".join(["4"] * of.ici_axes)
        raise TargetError(f"target {machine.text!r}: {of.name} is a torus of {of.ici_axes} axes: give it as {example}")
    if of.shapes:
        if "x".join(map(str, sorted(sizes))) not in of.shapes:
            nearest = _nearest(sizes, [tuple(map(int, each.split("x"))) for each in of.shapes])
            raise TargetError(
                f"target {machine.text!r}: {of.name} has no {shape}; the nearest are {nearest}. It has "
                f"{', '.join(of.shapes)} ({of.source('shapes')})"
            )
        return
    chips, most = math.prod(sizes), of.max_chips
    if most and chips > most:
        raise TargetError(
            f"target {machine.text!r}: {chips} chips; a slice of {of.name} has at most {most} "
            f"({of.source('max_chips')}). Several slices are written '*2'"
        )

    def divides(sizes: tuple[int, ...]) -> bool:
        return all(n % b == 0 for n, b in zip(sizes, of.host_bounds, strict=False))

    if not (chips == 1 or divides(sizes)) or not _is_of_cubes(sizes, of):
        steps = [sorted({1, 2, 4, n // 4 * 4, n // 4 * 4 + 4} - {0}) for n in sizes]
        options = [each for each in itertools.product(*steps) if divides(each) and _is_of_cubes(each, of)]
        why = f"a host has {'x'.join(map(str, of.host_bounds))} chips"
        why += f", and a slice is cubes of {'x'.join([str(of.cube)] * 3)} or a part of one" if of.cube else ""
        raise TargetError(
            f"target {machine.text!r}: {of.name} has no {shape}: {why}. The nearest are {_nearest(sizes, options)}"
        )


def _is_of_cubes(sizes: tuple[int, ...], of: Chip) -> bool:
    """Return whether a box consists of full cubes or is a part of one, if the chip's slices consist of cubes."""
    return not of.cube or all(n % of.cube == 0 for n in sizes) or all(of.cube % n == 0 for n in sizes)


def _nearest(sizes: tuple[int, ...], options: list[tuple[int, ...]]) -> str:
    """Return the three options whose sizes differ least, as ratios."""

    def distance(box: tuple[int, ...]) -> float:
        return sum(abs(math.log(a / b)) for a, b in zip(sorted(box), sorted(sizes), strict=True))

    return ", ".join("x".join(map(str, each)) for each in sorted(options, key=distance)[:3])


def _check_gpu(machine: Machine) -> None:
    sizes, of = machine.topology, machine.chip
    if machine.num_slices != 1:
        raise TargetError(f"target {machine.text!r}: GPUs have no slices; write hosts x GPUs, such as 'gpu h100:32x8'")
    if len(sizes) != 2 or min(sizes) < 1:
        raise TargetError(
            f"target {machine.text!r}: a GPU cluster is hosts x GPUs on each, such as "
            f"'gpu {of.name}:2x{of.domain_size}'"
        )
    hosts, per_host = sizes
    if per_host > of.domain_size:
        needed = -(-hosts * per_host // of.domain_size)
        raise TargetError(
            f"target {machine.text!r}: an NVLink domain of {of.name} has at most {of.domain_size} GPUs "
            f"({of.source('domain_size')}); write 'gpu {of.name}:{needed}x{of.domain_size}'"
        )
    together = of.domain_size // per_host if of.domain_spans_hosts else 1
    if hosts > together and hosts % together:
        raise TargetError(
            f"target {machine.text!r}: {together} hosts of {per_host} GPUs make one NVLink domain of {of.name}, so the "
            f"number of hosts must be a multiple of {together}, or less, not {hosts}"
        )


def _check_cpu(machine: Machine) -> None:
    if machine.topology or machine.num_slices != 1:
        raise TargetError("target 'cpu': simulated devices have no topology; write 'cpu' alone")


def topologies(of: str | Chip, size: int) -> tuple[Machine, ...]:
    """Return every machine of a chip with so many JAX devices: one slice first, and the most cube-like first.

    There is one machine for each number of TPU slices of at least one host. GPUs in full NVLink domains come first.
    Raises TargetError for an unknown chip.
    """
    return _topologies(named(of) if isinstance(of, str) else of, size)


@lru_cache(maxsize=512)
def _topologies(of: Chip, size: int) -> tuple[Machine, ...]:
    if of.kind == "cpu" or not 1 <= size <= _MOST_DEVICES:
        return ()
    if of.kind == "gpu":
        each = (of.domain_size, *(n for n in range(min(size, of.domain_size), 0, -1) if n != of.domain_size))
        return tuple(m for n in each if size % n == 0 and (m := _machine_or_none(of, (size // n, n))) is not None)
    if size % of.devices_per_chip:
        return ()
    chips, shapes = size // of.devices_per_chip, list[Machine]()
    for slices in _divisors(chips):
        if slices > 1 and chips // slices < min(_HOST, math.prod(of.host_bounds)):
            break
        same = (
            m for box in _boxes(chips // slices, of.ici_axes) if (m := _machine_or_none(of, box, slices)) is not None
        )
        shapes += list(same) if slices == 1 else list(same)[:1]
    return tuple(shapes)


def natural(of: str | Chip, size: int) -> Machine | None:
    """Return the most cube-like machine of a chip with so many JAX devices, in several slices only if one cannot be as
    large; None if there is none."""
    of = named(of) if isinstance(of, str) else of
    first = next(iter(topologies(of, size)), None)
    return first if first is not None and (first.num_slices == 1 or size > _largest(of)) else None


def grown(machine: Machine, size: int) -> Machine | None:
    """Return the machine of the same chip with another number of JAX devices, as cube-like as possible, if possible
    with equally many slices or GPUs per host; None if there is none."""

    def kept_size(m: Machine) -> int:
        return m.topology[1] if machine.chip.kind == "gpu" else m.num_slices

    alike = (m for m in topologies(machine.chip, size) if kept_size(m) == kept_size(machine))
    return next(alike, None) or natural(machine.chip, size)


def sizes_near(of: str | Chip, size: int) -> tuple[int, ...]:
    """Return the next numbers of JAX devices below and above a number that have a `natural` machine."""
    of = named(of) if isinstance(of, str) else of

    def exists(n: int) -> bool:
        return (of.kind == "gpu" or n % _HOST == 0 or n < _HOST) and natural(of, n) is not None

    below = next((n for n in range(min(size - 1, _MOST_DEVICES), 0, -1) if exists(n)), None)
    end = min(4 * size + 64, size + _FARTHEST, _MOST_DEVICES + 1)
    above = next((n for n in range(size + 1, end) if exists(n)), None)
    return tuple(n for n in (below, above) if n is not None)


def _largest(of: Chip) -> int:
    """Return the number of devices of the largest known slice."""
    listed = (math.prod(map(int, shape.split("x"))) for shape in of.shapes)
    chips = max(listed, default=of.max_chips or _MOST_DEVICES)
    return chips * of.devices_per_chip


def _machine_or_none(of: Chip, sizes: tuple[int, ...], slices: int = 1) -> Machine | None:
    if not _is_of_cubes(sizes, of):
        return None  # as most boxes are not, and to say why takes its time
    try:
        return Machine(of, sizes, slices)
    except TargetError:
        return None


def _boxes(chips: int, axes: int) -> list[tuple[int, ...]]:
    """Yield every box of so many chips, most cube-like first. Sizes rise, but 1 is last, because a plane has x and
    y."""
    firsts = itertools.combinations_with_replacement(_divisors(chips), axes - 1)
    boxes = ((*first, chips // math.prod(first)) for first in firsts)
    whole = sorted((b for b in boxes if math.prod(b) == chips and b[-2] <= b[-1]), key=lambda box: (sum(box), box))
    return [(*(n for n in box if n > 1), *(n for n in box if n == 1)) for box in whole]


def _divisors(size: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(size) + 1) if size % d == 0]
    return small + [size // d for d in reversed(small) if d * d != size]


def attached() -> str:
    """Return the target of JAX's devices. This starts JAX's backend; nothing else here does. Raises TargetError for an
    unknown kind of device."""
    import jax

    return target_of(cast("list[Any]", jax.devices()))  # pyright: ignore[reportUnknownMemberType]


def machine_of(target: str | Machine, size: int | None = None) -> Machine:
    """Return the machine of a target: a machine; its text, such as `tpu v5p:4x4x4`; a cloud's name, such as `v5p-64`;
    `attached` for JAX's devices; or a chip alone, such as `v5p`, for its most cube-like topology of `size` devices.
    Raises TargetError as `Machine.of` and `attached`, or if the chip has no topology of that size."""
    if size is not None and isinstance(target, str) and (alone := _CHIP_ALONE.fullmatch(target.strip())):
        of = chips().get(alone["name"].lower())
        if of is not None and of.kind != "cpu" and of.kind == (alone["kind"] or of.kind).lower():
            if (machine := natural(of, size)) is None:
                raise TargetError(f"target {target!r}: {none_of(of, size)}")
            return machine
    return Machine.of(attached() if target == "attached" else target)


def none_of(of: Chip, size: int) -> str:
    """Return the error for a chip without a topology of so many devices; it names sizes that exist."""
    near = " or ".join(map(str, sizes_near(of, size)))
    return f"{of.name} has no topology of {size} device{'s' * (size != 1)}" + (
        f"; make the mesh {near}" if near else ""
    )


def _of_cloud(text: str, cloud: CloudMachine) -> Machine:
    """Return the machine with a cloud's name; for a TPU the most cube-like slice, as in the clouds."""
    of = named(cloud.chip)
    if of.kind == "gpu":
        return Machine(of, (cloud.several, cloud.chips))
    one = natural(of, cloud.chips * of.devices_per_chip)
    if one is None or one.num_slices > 1:
        chips = (n // of.devices_per_chip for n in sizes_near(of, cloud.chips * of.devices_per_chip))
        near = " or ".join(f"{of.name}-{n * cloud.cores_per_chip}" for n in chips)
        raise TargetError(f"target {text!r}: {of.name} has no slice of {cloud.chips} chips; {near} would do")
    return Machine(of, one.topology, cloud.several)


def target_of(devices: Sequence[Any]) -> str:
    """Return the target's text for all of a machine's JAX devices. Raises TargetError for an unknown kind of device."""
    first = devices[0]
    if first.platform == "cpu":
        return "cpu"
    kind = str(first.device_kind)
    by_kind = {chip.device_kind: chip for chip in chips().values() if chip.kind != "cpu"}
    chip = by_kind.get(kind)
    if chip is None:
        raise TargetError(
            f"target 'attached': JAX's devices are {len(devices)} x {kind!r}, which is none of {', '.join(by_kind)}; "
            "name the target that is nearest"
        )
    if chip.kind == "gpu":
        hosts = len({d.process_index for d in devices})
        return f"gpu {chip.name}:{hosts}x{len(devices) // hosts}"
    sizes = [len({d.coords[axis] for d in devices}) for axis in range(chip.ici_axes)]
    slices = len({getattr(d, "slice_index", None) or 0 for d in devices})
    return f"tpu {chip.name}:{'x'.join(map(str, sizes))}" + (f"*{slices}" if slices > 1 else "")

"""Chips: memory, FLOPs per second, and the speed of each link. The numbers are in `chips.toml`.

>>> v5p = chip("v5p")
>>> v5p.ici_axes, v5p.ici_link_bytes_per_s, v5p.flops("bfloat16")
(3, 90000000000.0, 459000000000000.0)
>>> v5p.source("ici_axes")
'Google Cloud, TPU v5p, https://docs.cloud.google.com/tpu/docs/v5p, read 2026-11-20'

A user-defined chip is a changed one, or a new one:

>>> import dataclasses
>>> faster = dataclasses.replace(v5p, name="v5p at the data sheet's rate", ici_link_bytes_per_s=1.0e11)
>>> mine = Chip("mine", "gpu", hbm_bytes=96e9, hbm_bytes_per_s=4e12, flops_per_s={"bfloat16": 1e15},
...             nvlink_bytes_per_s=4.5e11, domain_size=8, node_egress_bytes_per_s=4e11)
>>> mine.flops("bfloat16")
1000000000000000.0
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cache, partial
from importlib.resources import files
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

from shardviz.errors import TargetError, excerpt

# What a product of each element type is counted as, where the chip has no rate of its own for it.
_COUNTED_AS = {
    "float16": ("bfloat16",),
    "float32 highest": ("float32", "bfloat16"),
    "float32": ("bfloat16",),  # on TPU, JAX's default precision rounds the factors to bfloat16
    "uint8": ("int8",),
    "int4": ("int8",),
    "uint4": ("int8",),
    "float4": ("float8", "bfloat16"),
    "float8": ("bfloat16",),
    "int8": ("bfloat16",),
}


def _is_whole(value: Any, least: int = 0) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) < 2**31


def _is_amount(value: Any) -> bool:
    number: Any = None if isinstance(value, bool) or not isinstance(value, Real) else value
    return number is not None and 0 <= number <= _LARGEST


def _is_rates(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(dtype, str) and _is_amount(rate) and rate > 0 for dtype, rate in value.items()
    )


def _is_texts(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(v, str) and _SHAPE.fullmatch(v) for v in value)


def _is_box(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 3 and all(_is_whole(v, 1) for v in value)


_LARGEST = 1e30
"""No number of a chip is larger: products of such numbers are finite."""
_SHAPE = re.compile(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8})*")
_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "str": (lambda value: isinstance(value, str), "text"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "int": (_is_whole, "a whole number of 0 or more"),
    "float": (_is_amount, f"a number from 0 to {_LARGEST:g}"),
    "Mapping[str, float]": (_is_rates, f"a mapping of element types to numbers, more than 0 and at most {_LARGEST:g}"),
    "Mapping[str, str]": (lambda value: isinstance(value, Mapping), "a mapping of texts"),
    "tuple[int, int, int]": (_is_box, "three whole numbers of 1 or more"),
    "tuple[str, ...]": (_is_texts, "a tuple of texts such as '4x8'"),
}
"""The type of an attribute → whether a value can be one, and what it must be."""


@dataclass(frozen=True)
class Chip:
    """A chip's numbers. Bytes, bandwidths and FLOPs are per chip, also if a chip is two JAX devices. None if unknown.

    Attributes:
        name: its name in targets (`v5p`, `h100`).
        kind: `tpu`, `gpu` or `cpu`.
        device_kind: JAX's name for its devices (`TPU v5 lite`); may be empty.
        hbm_bytes: the size of its main memory.
        hbm_bytes_per_s: the bandwidth of its main memory.
        flops_per_s: element type → FLOPs per second of dense products; `float32 highest` is in full precision.
        hbm_usable_bytes: the main memory that a compiled program may use.
        vmem_bytes: the most on-chip memory that the compiler gives a program's values (TPU); None also if it gives
            none.
        matrix_unit: the size of the matrix unit: rows, columns and contracted dimension of an MXU (TPU), rows or
            columns of a tensor core's instruction (GPU).
        matrix_share: the share of `flops_per_s` that large products reach, if measured.
        attention_share: the same for kernels of fused attention, which has a softmax between its products; None if
            equal.
        convolution_share: the same for convolutions; None if equal.
        hbm_share: the share of `hbm_bytes_per_s` that long reads and writes reach.
        launch_seconds: the overhead of a kernel if many are launched together.
        devices_per_chip: the number of JAX devices of a chip.
        core_link_bytes_per_s: the bandwidth between these, one direction.
        ici_axes: the number of axes of its torus (TPU).
        ici_link_bytes_per_s: one link of the torus, one direction (TPU).
        cube: the torus consists of cubes of this size, and wraps around if all sizes are multiples of it; or
        wraps_at: an axis wraps around if it has this size.
        host_bounds: the chips of one host, along x, y, z (TPU).
        max_chips: the most chips of one slice (TPU).
        shapes: the existing slices, each as text with sizes in rising order; empty for no list.
        dcn_bytes_per_s: into the network between slices, one direction (TPU).
        slice_wait: the share of a step by which each doubling of slices lengthens it, because all wait for the slowest
            (TPU).
        host_bytes_per_s: to or from the host's memory, one direction.
        nvlink_bytes_per_s: into the NVLink domain, one direction (GPU).
        domain_size: the GPUs of one NVLink domain.
        domain_spans_hosts: whether several hosts can be one NVLink domain (NVL72).
        node_egress_bytes_per_s: out of one NVLink domain into the network, one direction.
        hop_seconds: the least time of one hop over a link.
        network_hop_seconds: the least time of one hop over the network between NVLink domains.
        sources: attribute → the number's source.

    Examples:
        >>> import shardviz as sv
        >>> sv.Chip.like("v5e", hbm_bytes=32e9).hbm_bytes
        32000000000.0
    """

    name: str
    kind: str
    _: KW_ONLY
    hbm_bytes: float | None = None
    hbm_bytes_per_s: float | None = None
    flops_per_s: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    hbm_usable_bytes: float | None = None
    vmem_bytes: float | None = None
    matrix_unit: int | None = None
    matrix_share: float | None = None
    attention_share: float | None = None
    convolution_share: float | None = None
    hbm_share: float | None = None
    launch_seconds: float | None = None
    devices_per_chip: int = 1
    core_link_bytes_per_s: float | None = None
    ici_axes: int = 0
    ici_link_bytes_per_s: float | None = None
    cube: int | None = None
    wraps_at: int | None = None
    host_bounds: tuple[int, int, int] = (2, 2, 1)
    max_chips: int | None = None
    shapes: tuple[str, ...] = ()
    dcn_bytes_per_s: float | None = None
    slice_wait: float | None = None
    host_bytes_per_s: float | None = None
    nvlink_bytes_per_s: float | None = None
    domain_size: int = 8
    domain_spans_hosts: bool = False
    node_egress_bytes_per_s: float | None = None
    hop_seconds: float = 0.0
    network_hop_seconds: float = 0.0
    device_kind: str = ""
    sources: Mapping[str, str] = field(default_factory=dict[str, str], compare=False, repr=False)

    def __post_init__(self) -> None:
        for each in fields(self):
            value, (kind, _, none) = getattr(self, each.name), str(each.type).partition(" | ")
            holds, words = _KINDS[kind]
            if not (holds(value) or (none and value is None)):
                raise TargetError(f"chip {self.name!r}: {each.name} must be {words}, not {excerpt(repr(value))}")
            if each.name.endswith("_bytes_per_s") and value == 0:
                raise TargetError(f"chip {self.name!r}: {each.name} must be more than 0, not {value!r}")
        if self.kind not in ("tpu", "gpu", "cpu"):
            raise TargetError(f"chip {self.name!r}: its kind is 'tpu', 'gpu' or 'cpu', not {self.kind!r}")
        if self.kind == "tpu" and self.ici_axes not in (2, 3):
            raise TargetError(f"chip {self.name!r}: a TPU's torus has 2 or 3 axes; give ici_axes, not {self.ici_axes}")
        if self.devices_per_chip < 1 or self.domain_size < 1:
            raise TargetError(
                f"chip {self.name!r}: devices_per_chip and domain_size are 1 or more, not {self.devices_per_chip!r} "
                f"and {self.domain_size!r}"
            )
        object.__setattr__(self, "flops_per_s", MappingProxyType(dict(self.flops_per_s)))
        object.__setattr__(self, "sources", MappingProxyType(dict(self.sources)))
        for name in ("host_bounds", "shapes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def cores_per_device(self) -> int:
        """TensorCores of a device as libtpu counts devices: v4 and v5p chips of two cores are one device."""
        return 2 if self.name in ("v4", "v5p") and self.devices_per_chip == 1 else 1

    @property
    def own_bytes(self) -> float:
        """Bytes of one device's own memory for values."""
        return (self.vmem_bytes or 0.0) / self.devices_per_chip

    @property
    def sent_bytes(self) -> float:
        """The part of them for operands and results of collectives. By its compiler's buffer assignments this is all on
        v5e and none on v5p; other chips were not examined."""
        return self.own_bytes if self.name == "v5e" else 0.0

    @classmethod
    def like(cls, known: str, **changes: Any) -> Chip:
        """Return a known chip with some numbers changed, which then have no source: `Chip.like("v5e", hbm_bytes=32e9)`.

        Args:
            known: its name.
            changes: attributes of `Chip`. Rates in `flops_per_s` are added to the chip's own. `name` is the new chip's
                name; the known name with a star if not given.

        Raises:
            TargetError: for an unknown chip or attribute, or an impossible number.
        """
        base = chip(known)
        changes = {"name": f"{base.name}*"} | changes
        own = {f.name for f in fields(cls)} - {"sources"}
        if wrong := sorted(changes.keys() - own):
            raise TargetError(f"Chip.like({known!r}, {wrong[0]}=...): a chip has no such number; it has {sorted(own)}")
        if not isinstance(rates := changes.get("flops_per_s", {}), Mapping):
            raise TargetError(f"Chip.like({known!r}, flops_per_s=...): expected a mapping, not {rates!r}")
        changed = changes.keys() | {f"flops_per_s.{dtype}" for dtype in rates}
        sources = {of: source for of, source in base.sources.items() if of not in changed}
        return replace(base, **changes | {"flops_per_s": {**base.flops_per_s, **rates}, "sources": sources})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with plain dictionaries, because read-only ones cannot be pickled."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values |= {"flops_per_s": dict(self.flops_per_s), "sources": dict(self.sources)}
        return partial(Chip, **values), ()

    def flops(self, dtype: str) -> float:
        """Return the FLOPs per second of one chip for products of an element type.

        Raises:
            TargetError: if the chip has no rate for it, nor for a type that replaces it.
        """
        if name := self.rate_of(dtype):
            return self.flops_per_s[name]
        have = ", ".join(self.flops_per_s) or "none"
        raise TargetError(
            f"chip {self.name!r} has no FLOPs a second for {dtype!r}; it has {have}. Give it one with "
            f"dataclasses.replace(chip, flops_per_s={{{dtype!r}: ...}})"
        )

    def rate_of(self, dtype: str) -> str | None:
        """Return the element type whose rate applies to products of `dtype`; None if there is none."""
        name = family(dtype)
        return next((each for each in (name, *_COUNTED_AS.get(name, ())) if each in self.flops_per_s), None)

    def needs(self, attribute: str) -> float:
        """Return a number that must be known.

        Raises:
            TargetError: if it is unknown.
        """
        value = getattr(self, attribute)
        if not value:
            why = "simulated devices have no links and no speed; name a real machine such as 'tpu v5e:4x4'"
            fix = f"give it with dataclasses.replace(chip, {attribute}=...)"
            raise TargetError(f"chip {self.name!r} has no {attribute}: {why if self.kind == 'cpu' else fix}")
        return value

    def source(self, attribute: str) -> str:
        """Return the source of a number, or that it is unknown; `flops_per_s.bfloat16` names a rate."""
        return self.sources.get(attribute, "no source given")


def family(dtype: str) -> str:
    """`float8_e4m3fn` → `float8`, `f8e5m2` → `float8`, `bf16` → `bfloat16`."""
    short = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "s8": "int8", "u8": "uint8"}
    small = re.match(r"f(?:loat)?([84])", dtype)
    return f"float{small[1]}" if small else short.get(dtype, dtype)


@cache
def chips() -> Mapping[str, Chip]:
    """Return every chip of `chips.toml`, by name."""
    table = tomllib.loads((files("shardviz.costs") / "chips.toml").read_text(encoding="utf-8"))
    sources = table.pop("sources").items()
    where = {key: f"{source['title']}, {source['url']}, read {source['date']}" for key, source in sources}
    return MappingProxyType({name: _read(name, entry, where) for name, entry in table.items()})


def _read(name: str, entry: Mapping[str, Any], where: Mapping[str, str]) -> Chip:
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}

    def take(key: str, cell: Any) -> Any:
        sources[key] = "; ".join(filter(None, (where[cell["from"]], cell.get("note"))))
        return cell["is"]

    for key, cell in entry.items():
        if key == "flops_per_s":
            values[key] = {dtype: float(take(f"{key}.{dtype}", each)) for dtype, each in cell.items()}
        else:
            values[key] = take(key, cell) if isinstance(cell, Mapping) else cell
    return Chip(name=name, sources=sources, **values)


def chip(name: str) -> Chip:
    """Return the chip with a name, in any case. Raises TargetError, which lists the known names, if there is none."""
    named = chips().get(str(name).strip().lower())
    if named is None:
        raise TargetError(
            f"there is no chip {name!r}; there are {', '.join(chips())}. Give the numbers of another with "
            "shardviz.Chip(...)"
        )
    return named

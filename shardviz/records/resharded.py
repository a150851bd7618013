"""The data of a resharding's parts: an array on its way to another mesh, a kind of link, and a way of moving a tree."""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.notation.spec import DEVICE_MEMORY


@dataclass(frozen=True, kw_only=True)
class ReshardedLeaf:
    """An array of the tree.

    Attributes:
        name, new_name: its tree path before and after.
        shape: global.
        dtype, new_dtype: its element type before and after.
        before, after: its PartitionSpec as Python writes it; None if none expresses the sharding.
        first: the spec in which one copy of it arrives before it is gathered; None if it has no copies to save.
        sent_bytes, received_bytes: the most that one device sends, and receives.
        moved_bytes: bytes that pass between devices, all devices together.
        kept_bytes: bytes that stay on their device, all devices together.
        before_bytes, after_bytes: bytes of one shard.
        gathered: it is sharded before, and every device has all of it after.
        taken: how `jax.device_put` moves it in one process: `nothing`, `copies` of shards between devices, `a program`
            or `the host`.
        layers: the tree paths of its layers, which are arrays of their own on one side; empty if it is one array on
            both. The name is then their pattern, and shape, specs and bytes are of all layers, stacked.
        layer_dims: the dimension that counts the layers of a stacked array, on the side where they are stacked or
            split; else None. That is the side of `layers`. Without `layers` the array is one layer, which moves by
            itself, and it is the side of the stacked array.
        memory, new_memory: the memory of its shards before and after: `device`, or a host's, such as `pinned_host`.
        scales: empty for an array; `made` for scales that the array before does not have, with its `name`; `used` for
            scales that the array after does not have, with its `new_name`.
    """

    name: str
    new_name: str
    shape: tuple[int, ...]
    dtype: str
    new_dtype: str
    before: str | None
    after: str | None
    first: str | None
    sent_bytes: float
    received_bytes: float
    moved_bytes: float
    kept_bytes: float
    before_bytes: float
    after_bytes: float
    gathered: bool
    taken: str
    layers: tuple[str, ...] = ()
    layer_dims: tuple[int | None, int | None] = (None, None)
    memory: str = DEVICE_MEMORY
    new_memory: str = DEVICE_MEMORY
    scales: str = ""

    @property
    def stack(self) -> str:
        """The tree path of the stacked array that this layer, which moves by itself, belongs to; empty for others."""
        names = zip((self.name, self.new_name), self.layer_dims, strict=True)
        return next((name for name, dim in names if dim is not None and not self.layers), "")

    @property
    def prepared(self) -> bool:
        """Whether more is done than to move and cast it: it is stacked, has scales, or is in a host's memory."""
        return bool(self.layers or self.stack or self.scales) or {self.memory, self.new_memory} != {DEVICE_MEMORY}


@dataclass(frozen=True, kw_only=True)
class ReshardLink:
    """A kind of link (`ICI`, `DCN`, `NVLink`, `network`, `PCIe`), the bytes that pass such links, the seconds of the
    busiest one, and the formula. The seconds are None if no machine is known."""

    kind: str
    nbytes: float
    seconds: float | None = None
    formula: str = ""


@dataclass(frozen=True, kw_only=True)
class ReshardWay:
    """A way of moving the tree.

    Attributes:
        name: `jax.device_put`, `jax.jit`, `through the host`, `piece by piece` or `one copy, then gathered`.
        cast: `before` or `after` the move, if the element type changes; else empty.
        chunks: how many leaves each chunk has, in their order. The old arrays of a chunk are deleted before
            the next chunk moves.
        seconds: by the busiest link of each kind, or for `jax.jit` by Shardy's collectives; None if not known.
        formula: the arithmetic of the seconds.
        before_peak, after_peak: the most bytes that one device of either side holds at once.
        host_bytes: bytes in the hosts' memory, all hosts together.
        fits: whether both peaks are within the limit; None without a limit.
    """

    name: str
    cast: str
    chunks: tuple[int, ...]
    seconds: float | None
    formula: str
    before_peak: float
    after_peak: float
    host_bytes: float
    fits: bool | None

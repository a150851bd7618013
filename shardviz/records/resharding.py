"""The data of a resharding of a tree of arrays: who sends what, over which links, for how long, and the code for it."""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh
from shardviz.records.move_code import code_of
from shardviz.records.resharded import ReshardedLeaf, ReshardLink, ReshardWay
from shardviz.records.versioned import Versioned


@dataclass(frozen=True, kw_only=True, repr=False)
class Resharding(Versioned, kind="resharding"):
    """A tree of arrays on its way from one mesh to another.

    Attributes:
        before, after: the meshes.
        before_target, after_target: the machines; empty if not known.
        shared_devices: devices that both meshes have.
        leaves: the arrays, in the order in which chunks take them: those that free most memory come first.
        nowhere: paths of arrays that do not arrive, since the tree after has none of this path.
        unfed: paths of arrays of the tree after that no array becomes.
        links: the links that the bytes pass if each device gets its shards from the nearest holders; slowest first.
        pairs: (sender, receiver, bytes): the pairs of devices that exchange most, largest first.
        pair_count: how many pairs of devices exchange bytes.
        sent_bytes, received_bytes: the most that one device sends, and receives.
        ways: the ways compared; those that fit come first, the fastest of them at the top.
        limit: the bound on bytes per device that the chunks keep; None for no bound.
        notes: facts that the numbers rest on.
    """

    before: DeviceMesh
    after: DeviceMesh
    before_target: str = ""
    after_target: str = ""
    shared_devices: int
    leaves: tuple[ReshardedLeaf, ...]
    nowhere: tuple[str, ...] = ()
    unfed: tuple[str, ...] = ()
    links: tuple[ReshardLink, ...] = ()
    pairs: tuple[tuple[int, int, float], ...] = ()
    pair_count: int = 0
    sent_bytes: float = 0.0
    received_bytes: float = 0.0
    ways: tuple[ReshardWay, ...] = ()
    limit: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def moved_bytes(self) -> float:
        """Bytes that pass between devices, all devices together."""
        return sum(leaf.moved_bytes for leaf in self.leaves)

    @property
    def seconds(self) -> float | None:
        """Seconds of the slowest link, if each device gets its shards from the nearest holders; None if not known."""
        return max((link.seconds or 0.0 for link in self.links), default=0.0) if self.before_target else None

    def code(self, way: ReshardWay | None = None) -> str:
        """Return Python that moves the tree, with JAX alone.

        Args:
            way: one of `ways`; the first if None.

        Raises:
            ShardvizError: if no PartitionSpec expresses a sharding after the move.
        """
        if lost := next((leaf for leaf in self.leaves if leaf.after is None), None):
            raise ShardvizError(
                f"{lost.new_name or 'array'}: no PartitionSpec expresses its sharding; give it one in `after`"
            )
        names = [(leaf.name, leaf.new_name) for leaf in self.leaves]
        same = not self.nowhere and not self.unfed and all(old == new for old, new in names)
        return code_of(self.leaves, self.after, way or self.ways[0], same)

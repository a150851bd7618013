"""Words on the resharding of a tree: what moves, over which links, the ways of doing it, and the arrays."""

from __future__ import annotations

from collections.abc import Iterator

from shardviz.notation.spec import DEVICE_MEMORY
from shardviz.records.amounts import first_names, format_bytes, format_seconds, plural
from shardviz.records.resharded import ReshardedLeaf, ReshardWay
from shardviz.records.resharding import Resharding
from shardviz.view import document as doc

_FIRST, _MOST = 12, 200


@doc.document.register
def of_resharding(moved: Resharding) -> doc.Document:
    """Return the total, the links, the ways with the first one's code, and the arrays that move most."""
    sides = zip((moved.before, moved.after), (moved.before_target, moved.after_target), strict=True)
    ends = " → ".join(f"{mesh}{f' on {target}' if target else ''}" for mesh, target in sides)
    timed = f", {format_seconds(moved.seconds)} from device to device" if moved.before_target else ""
    amount = f"{format_bytes(moved.moved_bytes)} between devices{timed}"
    most = f"a device sends {format_bytes(moved.sent_bytes)}, receives {format_bytes(moved.received_bytes)}, at most"
    shared = f"{moved.shared_devices} of {moved.after.size} devices are also in the first mesh"
    links = doc.Rows(moved.links, name="links").table(
        ("link", lambda link: doc.words(link.kind, strong=True)),
        (doc.right("bytes"), lambda link: doc.nbytes(link.nbytes)),
        (doc.right("time"), lambda link: doc.seconds(link.seconds)),
        (doc.wrapped("how"), lambda link: link.formula),
    )
    return doc.Document.of(
        doc.paragraph(f"{most}; {plural(moved.pair_count, 'pair')} of devices; {shared}"),
        *_lost(moved),
        links if moved.links else None,
        _ways(moved),
        doc.section("Arrays", _arrays(moved), lead=plural(len(moved.leaves), "array")),
        *doc.notes(*moved.notes),
        _code(moved) if moved.ways and all(leaf.after is not None for leaf in moved.leaves) else None,
        title=doc.words(f"resharding, {ends}: {amount}", strong=True),
        mesh=moved.before,
    )


def _lost(moved: Resharding) -> Iterator[doc.Block]:
    """Yield what does not arrive as it should."""
    gathered = [leaf.new_name for leaf in moved.leaves if leaf.gathered]
    for names, what in (
        (gathered, "sharded before, but arrive replicated"),
        (moved.nowhere, "arrive nowhere: the tree after has no such path"),
        (moved.unfed, "come from nowhere: no array becomes them"),
    ):
        if names:
            yield doc.paragraph(doc.words(plural(len(names), "array"), tone="warn"), f"{what}: {first_names(names, 4)}")


def _ways(moved: Resharding) -> doc.Block:
    def name(way: ReshardWay) -> doc.Piece:
        return doc.words(f"{way.name} cast {way.cast}" if way.cast else way.name, strong=True)

    rows = doc.Rows(moved.ways, name="ways").table(
        ("way", name),
        (doc.right("chunks"), lambda way: str(len(way.chunks))),
        (doc.right("time"), lambda way: doc.seconds(way.seconds)) if moved.before_target else None,
        (doc.right("peak before"), lambda way: doc.nbytes(way.before_peak)),
        (doc.right("peak after"), lambda way: doc.nbytes(way.after_peak)),
        (doc.right("in hosts"), lambda way: doc.nbytes(way.host_bytes)),
        ("", lambda way: doc.fits_word(way.fits)) if moved.limit is not None else None,
        (doc.wrapped("how"), lambda way: way.formula) if moved.before_target else None,
    )
    bound = "" if moved.limit is None else f"; the limit is {format_bytes(moved.limit)}"
    return doc.section("Ways", rows, lead=f"peaks are bytes of the tree on one device{bound}")


def _arrays(moved: Resharding) -> doc.Block:
    def more(leaf: ReshardedLeaf) -> str:
        layers = plural(len(leaf.layers), "layer") if leaf.layers else ""
        return ", ".join(filter(None, (layers, f"scales {leaf.scales}" if leaf.scales else "")))

    def ends(leaf: ReshardedLeaf) -> str:
        sides = ((leaf.before, leaf.memory), (leaf.after, leaf.new_memory))
        texts = (f"{spec or 'no spec'}{'' if kind == DEVICE_MEMORY else f' in {kind}'}" for spec, kind in sides)
        return " → ".join(texts)

    ordered = sorted(moved.leaves, key=lambda leaf: -leaf.moved_bytes)
    return doc.Rows(ordered, first=_FIRST, most=_MOST, noun="array", name="arrays").table(
        ("array", lambda leaf: doc.code(doc.before_after(leaf.name, leaf.new_name))),
        ("", more) if any(map(more, moved.leaves)) else None,
        ("type and shape", lambda leaf: doc.shape(leaf.shape, dtype=doc.before_after(leaf.dtype, leaf.new_dtype))),
        (doc.wrapped("before → after"), ends),
        (doc.right("moved"), lambda leaf: doc.nbytes(leaf.moved_bytes)),
        (doc.right("kept"), lambda leaf: doc.nbytes(leaf.kept_bytes)),
        (doc.right("sent"), lambda leaf: doc.nbytes(leaf.sent_bytes, tip="the most that one device sends")),
        (doc.right("received"), lambda leaf: doc.nbytes(leaf.received_bytes, tip="the most that one device receives")),
        ("jax.device_put takes", lambda leaf: leaf.taken),
    )


def _code(moved: Resharding) -> doc.Section:
    code, lead = doc.Figure(of=doc.Listing(moved.code()), brief=True), "`.code()` returns it, --code prints it"
    return doc.section(f"Code: {moved.ways[0].name}", code, lead=lead, fold="closed", name="code")

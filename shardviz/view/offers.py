"""Presets to choose from, each with its difference to the plan that is open, before it is taken."""

from __future__ import annotations

from shardviz.explorer.cards import Deck
from shardviz.explorer.snapshot import Offer, Offers
from shardviz.view.cards import difference_pieces, memory_pieces, moved_pieces, step_pieces
from shardviz.view.document import Block, Column, Document, Inline, Row, Table, paragraph, row, words

COLUMNS = (
    *(Column("preset"), Column("what it does", wrap=True), Column("step", right=True)),
    *(Column("against what is open"), Column("memory per device"), Column("moved per device")),
)


def offers_document(offers: Offers, deck: Deck) -> Document:
    """A row a preset, the best first.

    Args:
        offers: what was tried.
        deck: the cards, of which one is open.
    """
    rows = tuple(_offer(offer, deck) for offer in offers.items)
    most = len(rows)
    blocks: list[Block] = []
    if rows:
        blocks.append(Table(columns=COLUMNS, rows=rows, first=most, most=most, noun="preset", name="offers"))
    if offers.trouble:
        blocks.append(paragraph(words(offers.trouble, tone="warn"), name="offers-trouble"))
    if offers.busy:
        blocks.append(paragraph("presets are being tried …", quiet=True, name="offers-busy"))
    said = "Each propagated by Shardy; memory is what is known before a compiler has planned it."
    blocks.append(paragraph(said, quiet=True))
    return Document(title=words("Presets", strong=True), blocks=tuple(blocks), mesh=deck.now.known.bound.mesh)


def _offer(offer: Offer, deck: Deck) -> Row:
    name = words(offer.name, strong=True, selects=None if offer.known is None else ("offer", offer.name))
    if offer.known is None:
        none = words("")
        return row(name, words(offer.trouble, tone="warn"), none, none, none, none)
    cells: tuple[Inline, ...] = (
        name,
        words(offer.text, quiet=True),
        tuple(step_pieces(offer.known)),
        tuple(difference_pieces(offer.known, deck.now, named=False)),
        tuple(memory_pieces(offer.known)),
        tuple(moved_pieces(offer.known)),
    )
    return row(*cells, selects=("offer", offer.name))

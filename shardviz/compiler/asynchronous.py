"""Collectives that stand in several instructions, and which of these is the one that counts.

A collective that goes on while the chip computes is written down more than once. Most compilers begin it with one
instruction and end it with another, `all-gather-start` and `all-gather-done`. A TPU's may instead write it into every
fusion that it runs beside, as a chain; its links share `channel_id` and `chain_id`:

    fusion.1   all-gather, chain_id="0", custom-call AsyncCollectiveStart   ← begins: this is the collective
    fusion.2   all-gather, chain_id="0", and a matrix product               ← goes on
    fusion.3   all-gather, chain_id="0", custom-call AsyncCollectiveDone    ← goes on, and ends

>>> from shardviz.compiler.module import parse
>>> module = parse('''HloModule m
... %begin (a: f32[4]) -> (f32[4], f32[8]) {
...   %a = f32[4]{0} parameter(0)
...   %g1 = f32[8]{0} all-gather(%a), channel_id=7, dimensions={0}, frontend_attributes={chain_id="0"}
...   ROOT %s = (f32[4]{0}, f32[8]{0}) custom-call(%g1), custom_call_target="AsyncCollectiveStart"
... }
... ENTRY %main (b: f32[4]) -> f32[8] {
...   %b = f32[4]{0} parameter(0)
...   %one = (f32[4]{0}, f32[8]{0}) fusion(%b), kind=kCustom, calls=%begin
...   ROOT %g2 = f32[8]{0} all-gather(%b), channel_id=7, dimensions={0}, frontend_attributes={chain_id="0"}
... }''')
>>> [(i.name, goes_on(c, i)) for c, i in module if kind_of(i)]
[('g1', False), ('g2', True)]

Whatever counts collectives, their bytes or their FLOPs asks here.
"""

from __future__ import annotations

from shardviz.compiler.module import Computation, Instruction
from shardviz.records import KINDS

_KINDS = {name: kind for kind in KINDS for name in (kind, f"{kind}-start")}
_CHAINED = 'chain_id="'
_BEGINS, _ENDS = '"AsyncCollectiveStart"', '"AsyncCollectiveDone"'


def kind_of(instruction: Instruction) -> str | None:
    """The kind of a collective, or of one that the instruction begins; None for any other."""
    return _KINDS.get(instruction.opcode)


def is_chained(instruction: Instruction) -> bool:
    """Whether a collective is a link of a chain."""
    return instruction.opcode in _KINDS and _CHAINED in instruction.attributes_text


def goes_on(computation: Computation, instruction: Instruction) -> bool:
    """Whether an instruction goes on with a collective, or ends one, that another began.

    Args:
        computation: where it stands.
        instruction: any instruction; of a pair the `-done` goes on.
    """
    opcode = instruction.opcode
    if opcode == "custom-call":
        return _ENDS in instruction.attributes_text
    if opcode not in _KINDS:
        return opcode.endswith("-done")
    users = [u.attributes_text for u in computation.users.get(instruction.name, ()) if u.opcode == "custom-call"]
    if any(_ENDS in text for text in users):
        return True
    return _CHAINED in instruction.attributes_text and not any(_BEGINS in text for text in users)

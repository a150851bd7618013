"""An explorer in a file: its cards with their plans, the machine, the selection, as versioned JSON.

Nothing in the file is run when it is read: it is plain data, and each field is checked. With the program it becomes an
explorer again: Shardy is asked anew for every plan, and the compiler for the one that is open.

A plan is kept as what it says of the program: a spec for every argument and output by tree path, its rules where their
filters are patterns (a function or a type of flax is spelled out, spec by spec; so are more than 1,000 rules, and
patterns of more than 1,000 characters, none of which a file may have), its constraints, its compiler options, and
what the program has otherwise, which is done to the program again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from shardviz.costs.machine import Machine
from shardviz.errors import ShardvizError, excerpt
from shardviz.explorer.cards import BASELINE, MOST_CARDS, Card, Deck, Results
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.machine_choice import read
from shardviz.files import path_of, read_whole
from shardviz.notation import Spec
from shardviz.program.intermediates import Constrain
from shardviz.program.plan import Plan
from shardviz.program.rules import Rules
from shardviz.records.report import PlanRecord

if TYPE_CHECKING:
    from shardviz.ask.program import Program

SCHEMA_VERSION = 1
_MOST_RULES, _MOST_PATTERN = 1_000, 1_000

_Name = Annotated[str, Meta(max_length=10_000)]
_Pattern = Annotated[str, Meta(max_length=_MOST_PATTERN)]


class _SavedPlan(msgspec.Struct, forbid_unknown_fields=True):
    """A plan: `bound` says it all; `rules` catch the arguments of `ruled`."""

    bound: PlanRecord
    rules: Annotated[tuple[tuple[_Pattern, Spec | None], ...], Meta(max_length=_MOST_RULES)] = ()
    exhaustive: bool = False
    ruled: tuple[str, ...] = ()
    constraints: tuple[Constrain, ...] = ()


class _SavedCard(msgspec.Struct, forbid_unknown_fields=True):
    id: _Name
    name: _Name
    plan: _SavedPlan
    note: _Name = ""


class _SessionFile(msgspec.Struct, forbid_unknown_fields=True):
    shardviz_session: int
    program: str
    target: _Name
    cards: Annotated[tuple[_SavedCard, ...], Meta(min_length=1, max_length=MOST_CARDS)]
    at: str
    against: str
    made: Annotated[int, Meta(ge=0, lt=2**31)]
    selected: str = ""
    tokens: bool | float | None = None
    model_flops: float | None = None


def session_json(state: ExplorerState) -> str:
    """An explorer's cards, machine and selection as JSON text."""
    deck = state.deck
    file = _SessionFile(
        shardviz_session=SCHEMA_VERSION,
        program=state.program.name,
        target=state.target,
        cards=tuple(
            _SavedCard(c.id, c.name, _plan(c.plan, c.results.bound, state.program), c.note) for c in deck.cards
        ),
        at=deck.at,
        against=deck.against,
        made=deck.made,
        selected=state.selected,
        tokens=deck.now.results.whole.tokens,
        model_flops=deck.now.results.whole.model_flops,
    )
    return msgspec.json.encode(file).decode()


def _plan(plan: Plan, bound: PlanRecord, program: Program) -> _SavedPlan:
    kept = _SavedPlan(bound=bound, constraints=plan.constraints)
    few = 0 < len(plan.rules) <= _MOST_RULES
    if few and all(isinstance(rule.filter, str) and len(rule.filter) <= _MOST_PATTERN for rule in plan.rules):
        own = {name for name, _ in plan.edits} | {member.path for member, _ in plan.cuts}
        kept.rules = tuple((rule.filter, rule.spec) for rule in plan.rules)
        kept.exhaustive = plan.rules.exhaustive
        kept.ruled = tuple(n for row in program.rules_table(plan).rows for n in row.wins if n not in own)
    return kept


def read_session(
    path: str | os.PathLike[str], program: Program, target: str | Machine | None = None, **options: Any
) -> ExplorerState:
    """The explorer that was saved in a file. `target` is another machine than the saved one, `options` are
    `ExplorerState`'s. A `ShardvizError` for a file that is none, or damaged; a `SpecError` where a plan does not fit
    the program; a `TargetError` or `MeshError` where the machine does not."""
    file = _read(path_of(path))
    plans = {card.id: _plan_of(card.plan) for card in file.cards}
    machine = read(file.target if target is None else target, plans[file.at].mesh)
    rates: dict[str, Any] = {"tokens": file.tokens, "model_flops": file.model_flops}
    state = ExplorerState(program, plans[file.at], target=machine, **(rates | options))

    def saved_deck(results: Callable[[Plan], Results]) -> Deck:
        with_plans = [(each, plans[each.id]) for each in file.cards]
        cards = (Card(id=c.id, name=c.name, note=c.note, plan=p, results=results(p)) for c, p in with_plans)
        return Deck(tuple(cards), at=file.at, against=file.against, made=file.made)

    state.restore(saved_deck)
    state.select(file.selected)
    return state


def _read(path: Path) -> _SessionFile:
    content = read_whole(path)
    try:
        head = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ShardvizError(f"{path.name} is no shardviz session: not JSON ({error})") from error
    version = head.get("shardviz_session") if isinstance(head, dict) else None
    if version != SCHEMA_VERSION:
        raise ShardvizError(
            f"{path.name} is no shardviz session of schema version {SCHEMA_VERSION} (found {excerpt(repr(version))}); "
            "explorer.save('session.json') writes one, and a newer shardviz may read a newer one"
        )
    try:
        file = msgspec.json.decode(content, type=_SessionFile)
    except (msgspec.ValidationError, ShardvizError, RecursionError) as error:
        raise ShardvizError(f"{path.name}: this shardviz session is damaged: {error}") from error
    ids = [card.id for card in file.cards]
    wrong = (
        f"two cards have the id {next(i for i in ids if ids.count(i) > 1)!r}"
        if len(set(ids)) < len(ids)
        else next((f"there is no card {each!r}" for each in (BASELINE, file.at, file.against) if each not in ids), "")
    )
    if wrong:
        raise ShardvizError(f"{path.name}: this shardviz session is damaged: {excerpt(wrong)}")
    return file


def _plan_of(kept: _SavedPlan) -> Plan:
    bound, ruled = kept.bound, set(kept.ruled)
    plan = Plan(
        bound.mesh,
        edits={name: spec for name, spec in bound.in_specs.items() if name not in ruled},
        out_edits=dict(bound.out_specs),
        rules=Rules(kept.rules, exhaustive=kept.exhaustive),
        constraints=kept.constraints,
        variant=bound.variant,
        options=bound.options,
    )
    return plan.with_memory(bound.in_memory).with_memory(bound.out_memory, output=True)

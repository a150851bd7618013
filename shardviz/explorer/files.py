"""An explorer as a file: its cards with their plans, the machine and the selection, as versioned JSON.

Reading a file runs no code from it; each field is validated. With the program it becomes an explorer again: every plan
is propagated anew, and the open one is compiled.

A plan is stored as a spec for every argument and output by tree path, with its constraints, compiler options and
variant. Rules are stored if their filters are patterns. Functions and flax types as filters, more than 1,000 rules, and
patterns of more than 1,000 characters are stored as specs instead.
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
from shardviz.plan.plan import Plan
from shardviz.records.report import PlanRecord
from shardviz.tracing.intermediates import Constrain
from shardviz.tracing.rules import Rules

if TYPE_CHECKING:
    from shardviz.ask.program import Program

SCHEMA_VERSION = 1
_MOST_RULES, _MOST_PATTERN = 1_000, 1_000

_Name = Annotated[str, Meta(max_length=10_000)]
_Pattern = Annotated[str, Meta(max_length=_MOST_PATTERN)]


class _SavedPlan(msgspec.Struct, forbid_unknown_fields=True):
    """A plan: `bound` has all specs; `rules` produced those of the arguments `ruled`."""

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
    deck = state.deck
    file = _SessionFile(
        shardviz_session=SCHEMA_VERSION,
        program=state.program.name,
        target=state.target,
        cards=tuple(_SavedCard(c.id, c.name, _plan(c, state.program), c.note) for c in deck.cards),
        at=deck.at,
        against=deck.against,
        made=deck.made,
        selected=state.selected,
        tokens=deck.now.results.whole.tokens,
        model_flops=deck.now.results.whole.model_flops,
    )
    return msgspec.json.encode(file).decode()


def _plan(card: Card, program: Program) -> _SavedPlan:
    plan = card.plan
    kept = _SavedPlan(bound=card.results.bound, constraints=plan.constraints)
    few = 0 < len(plan.rules) <= _MOST_RULES
    if few and all(isinstance(rule.filter, str) and len(rule.filter) <= _MOST_PATTERN for rule in plan.rules):
        own = {name for name, _ in plan.edits} | {member.path for member, _ in plan.dim_edits}
        kept.rules = tuple((rule.filter, rule.spec) for rule in plan.rules)
        kept.exhaustive = plan.rules.exhaustive
        kept.ruled = tuple(n for row in program.rules_table(plan).rows for n in row.wins if n not in own)
    return kept


def read_session(
    path: str | os.PathLike[str], program: Program, target: str | Machine | None = None, **options: Any
) -> ExplorerState:
    """Read an explorer from a file.

    Args:
        target: another machine than the saved one.
        options: keyword arguments of `ExplorerState`.

    Raises:
        ShardvizError: if the file is no session, or damaged.
        SpecError: if a plan does not fit the program.
        TargetError, MeshError: if the machine does not fit.
    """
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
    wrong = [f"two cards have the id {each!r}" for each in ids if ids.count(each) > 1]
    wrong += [f"there is no card {each!r}" for each in (BASELINE, file.at, file.against) if each not in ids]
    if wrong:
        raise ShardvizError(f"{path.name}: this shardviz session is damaged: {excerpt(wrong[0])}")
    return file


def _plan_of(kept: _SavedPlan) -> Plan:
    bound, ruled = kept.bound, set(kept.ruled)
    return Plan.of_record(
        bound,
        edits={name: spec for name, spec in bound.in_specs.items() if name not in ruled},
        out_edits=dict(bound.out_specs),
        rules=Rules(kept.rules, exhaustive=kept.exhaustive),
        constraints=kept.constraints,
    )

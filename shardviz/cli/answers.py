"""The JSON of what has none of its own in the API: a search, a sweep."""

from __future__ import annotations

import msgspec

from shardviz.ask import Program
from shardviz.cli.schemas import Offer, Other, Point, SearchData, SweepData
from shardviz.records import PlanRecord
from shardviz.study.answer import Found, Search
from shardviz.study.sweep import Sweep, value_text


def search_data(found: Search, program: Program) -> SearchData:
    """What a search offers, and why not otherwise."""
    return SearchData(
        program=found.program,
        target=found.target,
        level=found.level,
        offers=[_offer(each, program.bind(each.plan)) for each in found.offers],
        why_not=msgspec.convert(found.why_not, list[Other], from_attributes=True),
        floor_seconds=None if found.floor is None else found.floor.seconds,
        tried=len(found.tried),
        seconds=found.seconds,
        finished=found.finished,
        note=found.note,
    )


def _offer(found: Found, plan: PlanRecord) -> Offer:
    return Offer(
        text=found.text,
        mesh=dict(plan.mesh.shape),
        in_specs={name: str(spec.canonical()) for name, spec in plan.in_specs.items()},
        out_specs={name: None if spec is None else str(spec.canonical()) for name, spec in plan.out_specs.items()},
        seconds=found.cost.seconds,
        memory_bytes=found.cost.needs.total,
        accepted=found.accepted,
        verdict=found.verdict,
    )


def sweep_data(found: Sweep) -> SweepData:
    """The points of a sweep, in the grid's order."""
    pareto = found.pareto
    return SweepData(
        level=found.level,
        asked=found.asked,
        over={name: [value_text(value) for value in values] for name, values in found.over.items()},
        points=[
            Point(
                point={name: value_text(value) for name, value in row.point.items()},
                seconds=row.time,
                memory_bytes=row.memory,
                fits=row.fits,
                tokens_per_second=None if row.cost is None else row.cost.tokens_per_s,
                pareto=any(row is each for each in pareto),
                best=row is found.best,
                trouble=row.trouble,
            )
            for row in found.rows
        ],
        left=found.left,
    )

"""The JSON of what has none of its own in the API: a search, a sweep."""

from __future__ import annotations

import msgspec

from shardviz.ask import Program
from shardviz.cli.schemas import OfferData, Other, Point, SearchData, SweepData
from shardviz.records import PlanRecord
from shardviz.study.answer import Found, Search
from shardviz.study.sweep import Sweep, value_text


def search_data(search: Search, program: Program) -> SearchData:
    """What a search offers, and why not otherwise."""
    return SearchData(
        program=search.program,
        target=search.target,
        level=search.level,
        offers=[_offer(each, program.bind(each.plan)) for each in search.offers],
        why_not=msgspec.convert(search.why_not, list[Other], from_attributes=True),
        floor_seconds=None if search.floor is None else search.floor.seconds,
        tried=len(search.tried),
        seconds=search.seconds,
        finished=search.finished,
        note=search.note,
    )


def _offer(offer: Found, plan: PlanRecord) -> OfferData:
    return OfferData(
        text=offer.text,
        mesh=dict(plan.mesh.shape),
        in_specs={name: str(spec.canonical()) for name, spec in plan.in_specs.items()},
        out_specs={name: None if spec is None else str(spec.canonical()) for name, spec in plan.out_specs.items()},
        seconds=offer.cost.seconds,
        memory_bytes=offer.cost.needs.total,
        accepted=offer.accepted,
        verdict=offer.verdict,
    )


def sweep_data(sweep: Sweep) -> SweepData:
    """The points of a sweep, in the grid's order."""
    pareto = sweep.pareto
    return SweepData(
        level=sweep.level,
        asked=sweep.asked,
        over={name: [value_text(value) for value in values] for name, values in sweep.over.items()},
        points=[
            Point(
                point={name: value_text(value) for name, value in row.point.items()},
                seconds=row.time,
                memory_bytes=row.memory,
                fits=row.fits,
                tokens_per_second=None if row.cost is None else row.cost.tokens_per_s,
                pareto=any(row is each for each in pareto),
                best=row is sweep.best,
                trouble=row.trouble,
            )
            for row in sweep.rows
        ],
        left=sweep.left,
    )

"""The steps from one sharding to another are Shardy's own: as its pass has them, and as a program's report has them."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.mlir import ir
from jax.extend.mlir.passmanager import PassManager
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import _jax
from shardviz.layouts import layout
from shardviz.notation import DeviceMesh, Spec
from shardviz.stablehlo.module import sdy_spec, spec_of
from shardviz.stablehlo.resharding import moves_between

_MODULE = """
sdy.mesh @mesh = <[{axes}]>
sdy.mesh @other = <[{axes}], device_ids={order}>
func.func @main(%arg0: tensor<{shape}xf32> {{sdy.sharding = #sdy.sharding<@mesh, {before}>}}) -> tensor<{shape}xf32> {{
  %0 = sdy.reshard %arg0 <@{to}, {after}> : tensor<{shape}xf32>
  return %0 : tensor<{shape}xf32>
}}
"""


def shardys(shape: tuple[int, ...], before: Spec, after: Spec, mesh: DeviceMesh, other: DeviceMesh) -> int:
    """Elements that devices receive on Shardy's way, the most that one does at each step: by device and slice alone."""
    source = _MODULE.format(
        axes=", ".join(f'"{name}"={size}' for name, size in mesh.shape.items()),
        order=list(other.device_ids) or list(reversed(range(mesh.size))),
        to="other" if other.device_ids else "mesh",
        shape="x".join(map(str, shape)),
        before=sdy_spec(before, len(shape)),
        after=sdy_spec(after, len(shape)),
    )
    held = [rows(shape, before, mesh)]
    with _jax.mlir_context():
        module = ir.Module.parse(source)
        PassManager.parse("builtin.module(func.func(sdy-reshard-to-collectives))").run(module.operation)
        for op in module.body.operations[2].regions[0].blocks[0].operations:
            if op.operation.name != "func.return":
                out = op.operation.attributes["out_sharding"]
                held.append(rows(shape, spec_of(out), other if "@other" in str(out) else mesh))
    return sum(
        max(len(new[device] - old[device]) for device in new) for old, new in itertools.pairwise(held)
    )  # fmt: skip


def rows(shape: tuple[int, ...], spec: Spec, mesh: DeviceMesh) -> dict[int, set[int]]:
    """Device id → the elements that it holds, each by its number."""
    cut, numbers = layout(shape, spec, mesh), np.arange(np.prod(shape)).reshape(shape)
    return {device: set(numbers[cut.index(device)].ravel().tolist()) for device in cut.device_ids.tolist()}


@st.composite
def reshardings(draw):
    """Two specs of whole axes on a mesh, and on another order of its devices."""
    mesh = DeviceMesh.of(draw(st.sampled_from(["x=2,y=2", "x=2,y=2,z=2", "x=4,y=2", "x=6,y=2", "x=2,y=8"])))
    rank = draw(st.integers(1, 2))

    def spec() -> Spec:
        dims: list[list[str]] = [[] for _ in range(rank)]
        for name in draw(st.permutations(mesh.names)):
            where = draw(st.sampled_from([None, *range(rank)]))
            if where is not None:
                dims[where].append(name)
        return Spec(tuple(map(tuple, dims)))

    order = tuple(draw(st.permutations(range(mesh.size)))) if draw(st.booleans()) else ()
    return (48,) * rank, mesh, DeviceMesh(mesh.names, mesh.sizes, (), order), spec(), spec()


@settings(max_examples=100)
@given(reshardings())
def test_a_device_receives_what_it_does_on_shardys_way(case):
    shape, mesh, other, before, after = case
    way = moves_between(layout(shape, before, mesh), layout(shape, after, other))
    assert way.elements == shardys(shape, before, after, mesh, other) >= way.receive.max()


@pytest.mark.parametrize(
    ("before", "after", "order", "kinds", "elements"),
    [
        ("x", ("y", "x"), (3, 2, 1, 0), ["slice", "collective-permute"], 32),  # an all-gather and a slice would be 64
        ("x", "x", (3, 2, 1, 0), ["collective-permute"], 64),
        ("x", (), (3, 2, 1, 0), ["all-gather"], 64),
        ("x", "x", (), [], 0),
    ],
)
def test_the_devices_may_be_in_another_order(before, after, order, kinds, elements):
    here, there = DeviceMesh.of("x=2,y=2"), DeviceMesh(("x", "y"), (2, 2), (), order)
    way = moves_between(
        layout((16, 8), Spec.of((before,), 2), here), layout((16, 8), Spec.of((after or None,), 2), there)
    )
    assert ([step.kind for step in way.steps], way.elements) == (kinds, elements)


def test_ids_of_devices_may_be_any():
    here, there = (DeviceMesh(("x",), (4,), (), ids) for ids in ((10, 12, 17, 30), (30, 17, 12, 10)))
    way = moves_between(layout((8,), ("x",), here), layout((8,), ("x",), there))
    assert [step.kind for step in way.steps] == ["collective-permute"] and way.receive.tolist() == [2] * 4
    assert moves_between(layout((8,), ("x",), here), layout((8,), ("x",), here)).steps == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (P("x"), P(None, "x")),
        (P("x", "y"), P("y", "x")),
        (P(("x", "y")), P("x", ("y", "z"))),
        (P(("x", "y"), None), P("y", "x")),
        (P(None, ("z", "x")), P("x")),
    ],
)
def test_they_are_those_of_a_program_that_reshards(before, after):
    shape, mesh = (64, 64), {"x": 4, "y": 2, "z": 2}
    traced = sv.trace(lambda a: jax.lax.with_sharding_constraint(a, after), jax.ShapeDtypeStruct(shape, "float32"))
    report = traced.propagate(sv.Plan(mesh, in_specs=(before,)))
    steps = [step for step in sv.moves(shape, before, after, mesh).steps if step.kind != "slice"]
    assert [(c.kind, set(c.axes)) for c in report.collectives] == [(step.kind, set(step.axes)) for step in steps]


def test_what_is_more_than_a_device_needs_is_said():
    way = sv.moves((4096, 4096, 4096), (("a", "b"), "c", None), ("c", None, ("b", "a")), "a=16,b=16,c=16")
    assert way.elements > int(way.receive.max()) == 2**24
    assert f"a device needs 16,777,216 of the {way.elements:,} elements that arrive" in " ".join(way.text().split())
    assert "a device needs" not in sv.moves((8, 8), ("x",), (None, "x"), "x=4").text()


def test_parts_of_an_axis_that_overlap_go_through_the_tiles():
    mesh = DeviceMesh.of("x=6")
    half, third = (Spec(((("x", 1, n),),)) for n in (2, 3))
    way = moves_between(layout((12,), half, mesh), layout((12,), third, mesh))
    assert [step.kind for step in way.steps] == ["all-gather", "slice"]

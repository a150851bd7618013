"""What each process holds is said and drawn, and the global and the local view are told apart."""

from __future__ import annotations

import numpy as np
import pytest

from shardviz.errors import MeshError
from shardviz.layouts import by_process, layout
from shardviz.notation import DeviceMesh
from shardviz.view.picture import Lines
from shardviz.view.scene import build_scene, coarsen
from shardviz.view.show import Shown, show
from shardviz.view.subjects import picture
from tests.view.sanitizer import read, words

MESH = "data=4,model=2"


def test_each_process_with_its_slices_and_local_shape():
    shown = show((8, 6), ("data", "model"), MESH, processes=4)
    text = shown.text(100)
    assert "      1  4-7      [4:8, 0:6]  [4, 6]      1 of 2 along dimension 0" in text
    assert "local view: the old pjit took [4, 6] from each process (its own part)" in text
    page = words(shown.html())
    assert "2 processes process devices holds local data part 0 0-3 [0:4, 0:6] [4, 6] 0 of 2 along dimension 0" in page
    assert "jax.make_array_from_process_local_data(sharding, local_data)" in page
    assert "[4:6, 3:6] on device 5 (data 2, model 1), process 1" in read(shown.html()).titles


def test_one_process_or_none_known_says_nothing():
    for given in (None, 8, [3] * 8):
        shown = show((8, 6), ("data", "model"), MESH, processes=given)
        assert shown.hosts is None and "process" not in shown.text() + shown.html()


def test_the_meshs_own_processes_are_taken():
    mesh = DeviceMesh(("x",), (4,), (), (7, 5, 2, 0), (1, 1, 0, 0))
    assert show((8,), ("x",), mesh).hosts.devices(0) == (2, 0)


def test_processes_are_counted_by_device_id():
    mesh = DeviceMesh(("x",), (4,), (), (30, 10, 20, 0))
    assert show((8,), ("x",), mesh, processes=2).hosts.process_of.tolist() == [1, 0, 1, 0]


def test_a_part_with_gaps_and_a_global_shape_that_does_not_follow():
    """From the docstring of JAX's `num_addressable_indices`: hosts 1221 / 1221 / 0000."""
    shown = show((3, 4), ("x", "y"), "x=3,y=4", processes=[1, 2, 2, 1, 1, 2, 2, 1, 0, 0, 0, 0])
    for text in (" ".join(shown.text(200).split()), words(shown.html())):
        assert "4 elements in [0:2, 0:4], with gaps" in text
        assert "local_data, global_shape=(3, 4))" in text
        assert "does not follow from the local one along dimensions 0, 1" in text
        assert "the old pjit refused this: the devices of a process form no box of the mesh" in text


def test_what_is_whole_on_every_process_was_given_whole():
    assert "took [8, 6] from each process (the whole array)" in show((8, 6), (), MESH, processes=4).text(120)


@pytest.mark.parametrize("processes", [3, 0, True, [0, 1]])
def test_what_does_not_fit_the_mesh_is_said(processes):
    with pytest.raises(MeshError, match="processes"):
        show((8, 6), (), MESH, processes=processes)


def test_thick_lines_stand_where_processes_meet():
    hosts = [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]
    shown = show((8, 8), ("a", "b"), "a=4,b=4", processes=hosts)
    rows = [line for line in shown.text().splitlines() if "│" in line]
    assert [line.count("┃") for line in rows] == [1, 1, 0, 1, 1] and rows[2].count("━") == 4 * 5
    assert shown.html().count("border-left:3px solid") == shown.html().count("border-top:3px solid") == 4
    assert "thick lines separate processes" in shown.text()
    plain = show((8, 8), ("a", "b"), "a=4,b=4")
    assert "3px solid" not in plain.html() and "┃" not in plain.text()


def test_edges_are_where_the_processes_of_neighbours_differ():
    random = np.random.default_rng(0)
    for _ in range(40):
        cut = layout((8, 8, 8), ("b", "a", None), "a=2,b=4,c=2")
        hosts = by_process(cut, random.integers(0, 3, 16))
        for scene in (build_scene(cut, hosts), coarsen(build_scene(cut, hosts), rows=2, columns=1, panels=1)):
            held = [
                [sorted(hosts.process_of[cut.device_ids == d].item() for d in cell) for cell in row]
                for row in scene.devices[0].tolist()
            ]
            below, beside = scene.edges
            for r, row in enumerate(held):
                for c, cell in enumerate(row):
                    assert r == 0 or below[0, r - 1, c] == (cell != held[r - 1][c])
                    assert c == 0 or beside[0, r, c - 1] == (cell != row[c - 1])


def test_pictures_and_figures_have_them_too():
    cut = layout((64, 64), ("a", "b"), "a=32,b=32")
    hosts = by_process(cut, np.arange(1024) // 512)
    with_lines, without = Shown(cut, hosts=hosts).html(), Shown(cut).html()
    assert with_lines.count("border-top:3px solid") == 32 and "3px solid" not in without
    assert "[0:2, 0:2], process 0" in read(with_lines).titles
    shapes = picture(show((8, 8), ("a", "b"), "a=4,b=4", processes=8)).ordered
    (thick,) = (shape for shape in shapes if isinstance(shape, Lines) and shape.name == "edges")
    assert len(thick.lines) == 4 and thick.width > 2


def test_many_processes_are_counted():
    shown = show((8192, 4096), ("a", "b"), "a=64,b=32", processes=8)
    assert "256 processes" in shown.text() and "… and 240 more processes" in shown.text()
    assert len(shown.html()) < 175_000

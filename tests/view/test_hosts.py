"""What each host holds is outlined in shard maps, told, and true of the machine."""

from __future__ import annotations

import numpy as np
import pytest

from shardviz.layouts import layout
from shardviz.view.picture import Labels, Lines
from shardviz.view.scene import build_scene, coarsen
from shardviz.view.show import Shown, show
from shardviz.view.subjects import picture
from tests.view.sanitizer import read, words

POD = {"mesh": "data=4,model=4", "target": "tpu v5e:4x4"}


def test_each_host_with_its_devices_and_its_own_data():
    shown = show((8, 6), ("data", "model"), "data=4,model=4", target="tpu v5e:4x4")
    text = " ".join(shown.text(120).split())
    assert "1 2-3,6-7 [0:4, 4:6] [4, 2] 0 of 2 along dimension 0; 1 of 2 along dimension 1" in text
    assert "4 hosts (h0 to h3), each a process of 4 devices; thick lines separate them" in text
    page = shown.html()
    assert "1 2-3,6-7 [0:4, 4:6] [4, 2] 0 of 2 along dimension 0" in words(page)
    assert "[2:4, 2:4] on device 5 (data 1, model 1), host 0" in read(page).titles
    assert shown.layout.local(1).shape == (4, 2)


@pytest.mark.tpu
def test_hosts_are_libtpus(monkeypatch):
    """A batch on v5p 4x4x4 is loaded by 16 hosts, as libtpu's own topology of it says."""
    from jax.experimental import topologies
    from jax.experimental.mesh_utils import create_device_mesh
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from shardviz.processes.job import TPU_ENVIRONMENT

    for name, value in TPU_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    devices = topologies.get_topology_desc("v5p:4x4x4", "tpu").devices
    mesh = Mesh(create_device_mesh((16, 4), devices=devices), ("data", "model"))
    theirs = NamedSharding(mesh, PartitionSpec("data", "model")).devices_indices_map((64, 128))
    ours = show((64, 128), ("data", "model"), "data=16,model=4", target="tpu v5p:4x4x4").layout
    assert len(ours.processes) == 16
    for process in ours.processes:
        mine = {d.id: index for d, index in theirs.items() if d.process_index == process}
        assert {device: ours.index(device) for device in ours.local(process).device_ids} == {
            device: tuple(slice(*part.indices(size)[:2]) for part, size in zip(index, (64, 128), strict=True))
            for device, index in mine.items()
        }
    assert show((64, 128), NamedSharding(mesh, PartitionSpec("data", "model"))).layout.processes == ours.processes


@pytest.mark.parametrize("target", [None, "tpu v5e:2x2"])
def test_one_host_says_nothing(target):
    shown = show((8, 6), ("data",), "data=4", target=target)
    assert shown.layout.processes == (0,) and "host" not in shown.text() + shown.html()


def test_thick_lines_and_names_stand_where_hosts_meet():
    shown = show((8, 8), ("data", "model"), **POD)
    rows = [line for line in shown.text().splitlines() if "│" in line]
    assert [line.count("┃") for line in rows] == [1, 1, 0, 1, 1] and rows[2].count("━") == 4 * 5
    assert shown.html().count("border-left:3px solid") == shown.html().count("border-top:3px solid") == 4
    shapes = list(picture(shown).ordered)
    (thick,) = (s for s in shapes if isinstance(s, Lines) and s.width > 2)
    assert len(thick.lines) == 8
    assert ("h0", "h1", "h2", "h3") in [s.texts for s in shapes if isinstance(s, Labels)]
    plain = show((8, 8), ("data", "model"), POD["mesh"])
    assert "3px solid" not in plain.html() and "┃" not in plain.text()


def test_edges_are_where_the_hosts_of_neighbours_differ():
    random = np.random.default_rng(0)
    for _ in range(40):
        cut = layout((8, 8, 8), ("b", "a", None), "a=2,b=4,c=2", random.integers(0, 3, 16))
        for scene in (build_scene(cut), coarsen(build_scene(cut), rows=2, columns=1, panels=1)):
            held = [
                [{int(cut.process_ids[cut.row(d)]) for d in cell} for cell in row] for row in scene.devices[0].tolist()
            ]
            below, beside = scene.edges(0)
            for r, row in enumerate(held):
                for c, cell in enumerate(row):
                    assert r + 1 == len(held) or ((r, c) in below) == (cell != held[r + 1][c])
                    assert c + 1 == len(row) or ((r, c) in beside) == (cell != row[c + 1])


def test_a_part_with_gaps_and_a_global_shape_that_does_not_follow():
    """From the docstring of JAX's `num_addressable_indices`: hosts 1221 / 1221 / 0000."""
    cut = layout((3, 4), ("x", "y"), "x=3,y=4", [1, 2, 2, 1, 1, 2, 2, 1, 0, 0, 0, 0])
    for text in (" ".join(Shown(cut).text(200).split()), words(Shown(cut).html())):
        assert "[0:2, 0:4], with gaps" in text and "irregular along dimension 1" in text
        assert "its_own_data, global_shape=(3, 4))" in text


def test_many_hosts_are_counted():
    shown = show((8192, 4096), ("a", "b"), "a=64,b=32", target="tpu v5p:8x16x16")
    assert "512 hosts" in shown.text() and "… and 496 more hosts" in shown.text()
    assert len(shown.html()) < 175_000

"""Targets: what is asked of the compile server for each machine, and what is said where nothing can compile for it."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import processes
from shardviz.ask import targeting
from shardviz.ask.targeting import resolve_target
from shardviz.compiler import targets as targets_module
from shardviz.compiler.targets import GPUS, TargetStatus, gpu_config, targets
from shardviz.costs.chips import chips
from shardviz.costs.machine import Machine, target_of
from shardviz.errors import TargetError
from shardviz.notation import DeviceMesh
from shardviz.propagate.lower import LowerFor


def product(x, w):
    return x @ w


@pytest.fixture
def program():
    return sv.trace(product, *(jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((64, 32), (32, 16))))


@pytest.fixture
def installed(monkeypatch):
    """Pretends that every compiler is here, or none is."""

    def pretend(ready):
        more = {} if ready else {"missing": "the compiler is not installed", "install": "pip install 'shardviz[such]'"}
        statuses = [TargetStatus(name=name, ready=ready, **more) for name in ("cpu", "tpu", "gpu")]
        monkeypatch.setattr(targeting, "targets", lambda: statuses)

    return pretend


@pytest.mark.parametrize(
    ("target", "name", "details"),
    [
        ("tpu v5p:4x4x4", "v5p:4x4x4", {"wrap": (True, True, True)}),
        ("tpu v5p:2x2x4", "v5p:2x2x4", {}),
        ("tpu v5e:8x16", "v5e:8x16", {"wrap": (False, True, False)}),
        ("tpu v5e:4x4*2", "v5e:4x4", {"num_slices": 2}),
        ("tpu v4:2x2x2", "v4:2x2x2", {"chip_config_name": "megacore"}),
        ("tpu v5e:1x1", "v5e:1x1", {"chips_per_host_bounds": (1, 1, 1)}),
        ("tpu tpu7x:2x2x1", "tpu7x:2x2x1", {}),
        ("gpu h100:2x8", "2x1x8", {}),  # two NVLink domains of one host each
        ("gpu gb200:18x4", "1x18x4", {}),  # one domain of 18 hosts
        ("gpu gb200:36x4", "2x18x4", {}),
    ],
)
def test_a_target_in_its_compilers_words(installed, target, name, details):
    installed(True)
    found = resolve_target(target, DeviceMesh.of({"data": Machine.of(target).size}))
    assert (found.topology.name, dict(found.topology.details)) == (name, details)
    assert sorted(found.topology.device_ids) == sorted(Machine.of(target).ids())
    assert (found.text, found.missing) == (target, "")


def test_a_mesh_keeps_its_own_order_of_devices(installed):
    installed(True)
    order = (3, 1, 0, 2)
    mesh = DeviceMesh(("data",), (4,), device_ids=order)
    assert resolve_target("tpu v5e:2x2", mesh).topology.device_ids == order


def test_slices_stand_where_the_mesh_says(installed):
    installed(True)
    assert resolve_target("tpu v5e:2x2*2", DeviceMesh.of("data=2*2,model=2")).slices == (0, 0, 0, 0, 1, 1, 1, 1)
    assert resolve_target("tpu v5e:2x2*2", DeviceMesh.of("data=2,model=2*2")).slices == (0, 0, 1, 1, 0, 0, 1, 1)
    assert resolve_target("tpu v5e:2x2", DeviceMesh.of("data=4")).slices == ()


def test_a_mesh_of_another_size_is_told_which_would_do(program):
    plan = sv.Plan("data=8,model=4", (P("data"), P()))
    with pytest.raises(sv.errors.MeshError, match="has 32 devices and the target tpu v5p:4x4x4 has 64") as error:
        program.compile(plan, target="tpu v5p:4x4x4")
    would = str(error.value).partition("would do: ")[2].split(" or ")
    assert would == ["data=16,model=4", "data=8,model=8"]
    assert {DeviceMesh.of(text).size for text in would} == {64}


@pytest.mark.parametrize(("mesh", "size"), [("a=3,b=5", 64), ("a=7", 64), ("a=3,b=5,c=7", 8)])
def test_where_no_axis_can_be_changed_another_mesh_is_named(mesh, size):
    target = {64: "tpu v5p:4x4x4", 8: "tpu v5e:2x4"}[size]
    with pytest.raises(sv.errors.MeshError, match="a mesh that would do: ") as error:
        resolve_target(target, DeviceMesh.of(mesh))
    assert DeviceMesh.of(str(error.value).partition("would do: ")[2]).size == size


@pytest.mark.parametrize("target", ["tpu v99:4x4", "tpu v5e:3x5", "gpu v5e:4x4", "nonsense!", "tpu v99"])
def test_a_machine_that_there_is_not_is_refused(program, target):
    with pytest.raises(TargetError):
        program.compile(sv.Plan("data=4", (P("data"), P())), target=target)


def test_without_a_compiler_partitioned_stands_in_and_compiled_is_refused_with_the_command(program, installed):
    installed(False)
    plan = sv.Plan("data=2,model=8", (P("data", None), P(None, "model")), P("data", None))
    with pytest.raises(
        sv.errors.CompileRefused, match=r"cannot be compiled for here.*to install it: pip install 'shardviz\[such\]'"
    ):
        program.compile(plan, target="gpu h100:2x8")
    report = program.partition(plan, target="gpu h100:2x8")
    assert (report.level, report.target) == ("partitioned", "gpu h100:2x8")
    (note,) = [d for d in report.diagnostics if d.rule == "simulated-devices"]
    assert "pip install 'shardviz[such]'" in note.text
    simulated = program.partition(plan)
    untimed = tuple(dataclasses.replace(c, seconds=None, formula=None) for c in report.collectives)
    assert untimed == tuple(simulated.collectives) and simulated.target == "cpu"
    optional = program.partition(plan, target="gpu h100:2x8", options={"xla_gpu_such": True})
    (note,) = [d for d in optional.diagnostics if d.rule == "options-left-out"]
    assert "xla_gpu_such" in note.text and optional.collectives == report.collectives
    processes.shutdown()


def test_packages_are_looked_for_again_only_where_something_was_installed(tmp_path, monkeypatch):
    looked_for, real = [], targets_module.version_of
    monkeypatch.setattr(targets_module, "version_of", lambda name: looked_for.append(name) or real(name))
    monkeypatch.syspath_prepend(tmp_path)
    before = sv.targets()
    once = len(looked_for)
    assert once and sv.targets() == before and len(looked_for) == once
    (tmp_path / "libtpu-0.0.1.dist-info").mkdir()
    (tmp_path / "libtpu-0.0.1.dist-info" / "METADATA").write_text("Name: libtpu\nVersion: 0.0.1\n")
    assert "libtpu 0.0.1" in sv.targets()[1].compiler


def test_packages_that_do_not_go_with_jax_are_named_before_anything_is_compiled(program, monkeypatch):
    real = targets_module.version_of
    monkeypatch.setattr(targets_module, "_read_targets", targets_module._read_targets.__wrapped__)
    odd = {"libtpu": "0.0.1", "nvidia-cuda-nvcc": "13.1.1", "jax-cuda13-pjrt": "0.4.1", "jax-cuda13-plugin": "0.4.1"}
    monkeypatch.setattr(targets_module, "version_of", lambda name: odd.get(name) or real(name))
    monkeypatch.setattr(targets_module, "_importable", lambda module: True)
    said = {
        "tpu v5e:2x2": r"goes with libtpu \d.*\*, not 0\.0\.1; to install it: pip install 'shardviz\[tpu\]'",
        "gpu h100:1x4": r"goes with jax-cuda13-plugin .*, not 0\.4\.1; to install it: pip install 'shardviz\[cuda\]'",
    }
    plan = sv.Plan("data=4", (P("data"), P()))
    for target, words in said.items():
        with pytest.raises(sv.errors.CompileRefused, match=words):
            program.compile(plan, target=target)


def test_every_chip_of_the_cost_model_is_listed_with_its_compiler():
    kinds = {status.name: set(status.chips) for status in targets()}
    for kind in ("tpu", "gpu"):
        assert kinds[kind] == {name for name, chip in chips().items() if chip.kind == kind}


@pytest.mark.parametrize("name", GPUS)
def test_a_gpus_description_has_the_memory_that_the_cost_model_has(name):
    text = gpu_config(name)
    assert f"device_memory_size: {chips()[name].hbm_usable_bytes}\n" in text
    assert text.count("{") == text.count("}")


def test_attached_devices_are_a_target(program):
    report = program.compile(sv.Plan("data=4", (P("data"), P())), target="attached")
    assert report.target == "cpu" == jax.devices()[0].platform
    with pytest.raises(TargetError, match="JAX's devices are 2 x 'NVIDIA T4', which is none of TPU v2"):
        target_of([SimpleNamespace(platform="gpu", device_kind="NVIDIA T4", process_index=0)] * 2)


@pytest.mark.parametrize("target", ["tpu v3:4x4", "tpu v5p:2x2x4", "tpu tpu7x:2x2x1", "tpu v5e:2x4*2", "tpu v4:2x2x1"])
def test_a_slices_own_devices_are_told_from_their_coordinates(target):
    machine = Machine.of(target)
    where = zip(machine.coords(), machine.slices(), strict=True)
    kind = machine.chip.device_kind
    made = [SimpleNamespace(platform="tpu", device_kind=kind, coords=tuple(c[:3]), slice_index=s) for c, s in where]
    assert target_of(made) == target


def test_a_program_is_lowered_for_another_target_after_a_change_of_mesh():
    """Nested jits remember the mesh that they were traced on, and JAX lowers them on no other of another size."""

    def step(w, x):
        def loss(w):
            return jnp.where(x @ w > 0, jax.nn.silu(x @ w), 0).sum()

        return w - jax.grad(loss)(w)

    program = sv.trace(step, *(jax.ShapeDtypeStruct((64, 64), jnp.float32) for _ in "wx"))
    small, large = (sv.Plan({"data": n, "model": 1}, (P(), P("data", None))) for n in (4, 8))
    program.bind(small)
    on_cpu = program._lowerings.lower(small)
    on_tpu = program._lowerings.lower(large, LowerFor("tpu", "TPU v5", 2))
    assert on_cpu.traced is on_tpu.traced and program._lowerings.lower(large) is on_cpu


def test_a_chip_that_no_compiler_knows_is_a_machine_all_the_same():
    mine = Machine(dataclasses.replace(chips()["v5e"], name="mine"), (2, 2))
    found = resolve_target(mine, DeviceMesh.of("data=4"))
    assert found.topology is None and "mine" in found.missing and "level 'partitioned' works" in found.missing

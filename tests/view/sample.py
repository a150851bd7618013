"""A small report with one of everything, and a hostile one."""

from __future__ import annotations

from shardviz.judge.report import Report
from shardviz.layouts import layout
from shardviz.notation import DeviceMesh
from shardviz.records import Collective, Cost, Finding, Frame, Memory, Value, Work
from shardviz.records.report import PlanRecord
from tests.collectives import collective

MESH = DeviceMesh.of("data=8,model=8")
HOSTILE = "<img src=x onerror=alert(1)>\"'&"


def value(name, shape, dtype, spec, mesh=MESH, **more) -> Value:
    cut = layout(shape, spec, mesh)
    return Value(
        name=name,
        shape=shape,
        dtype=dtype,
        spec=cut.spec,
        shard_shape=cut.shard_shape,
        bytes_per_device=cut.bytes_per_device(dtype),
        **more,
    )


def work(phase: str, source: Frame | None, module: str, dot: float, other: float, moved: float) -> Work:
    dtype = "bfloat16" if dot else "float32"
    place = {"phase": phase, "source": source, "module": module, "dtype": dtype}
    return Work(**place, dot_flops=dot, other_flops=other, hbm_bytes=moved)


def report(mesh: DeviceMesh = MESH, evil: str = "") -> Report:
    """A report on a mesh of two axes; `evil` is put into every text that comes from outside."""
    one, two = mesh.names

    def at(line: int) -> Frame:
        return Frame(f"/src/{evil}model.py", line, f"block{evil}")

    def moved(kind, axes, dtype, shape, nbytes, count, **more) -> Collective:
        return collective(kind, axes, nbytes, count=count, dtype=dtype, shape=shape, **more)

    wq = value(f"params['wq{evil}']", (8192, 4096), "bfloat16", (one, two), mesh)
    aux = Value(
        name="aux", shape=(64, 64), dtype="float32", spec=None, sharding={"hlo": f"{{devices=[8,8]<=[64]}}{evil}"}
    )
    dot = value(
        "dot.1", (256, 4096), "bfloat16", (one,), mesh, source=at(20), op=f"dot{evil}", label=f"q{evil}", count=80
    )
    traced = {"groups": f"[8,8]<=[64]{evil}", "name_stack": f"jit{evil}"}
    timed = {"seconds": 1e-5, "formula": f"2 V / W{evil}"}
    return Report(
        level="partitioned",
        program=f"train_step{evil}",
        plan=PlanRecord(mesh, {}, {}),
        arguments=(wq, value("x", (256,), "int32", (one,), mesh)),
        outputs=(value("loss", (), "float32", (), mesh), aux),
        intermediates=(dot,),
        collectives=(
            moved("all-gather", (one,), "bfloat16", (8192, 512), 2**20, 160, source=at(20), phase="forward", **traced),
            moved("all-reduce", (two,), "bfloat16", (32, 4096), 2**18, 240, source=at(23), phase="backward"),
            moved("reduce-scatter", (one,), "float32", (1024,), 4096, 80, source=at(23)),
            moved("all-reduce", (one, two), "float32", (), 4, 1, source=at(40), **timed),
            moved("all-to-all", None, "float32", (128, 4), 2048, None, name=f"a2a{evil}"),
            moved("collective-permute", ((two, 2, 4),), "float32", (4,), 16, 3, conditional=True, origin="user"),
        ),
        memory=Memory(
            arguments=2_300_000_000,
            outputs=2_300_000_000,
            aliased=2_200_000_000,
            temporaries=38_000_000_000,
            peak=39_200_000_000,
        ),
        cost=Cost(
            dot_flops=1.3e15,
            unknown_loops=1,
            other_flops=2e12,
            once_flops=1.6275e13,
            hbm_bytes=6e12,
            once_hbm_bytes=1e11,
            work=(
                work("backward", at(27), f"mlp{evil}", 8e14, 1e12, 3e12),
                work("forward", at(27), f"mlp{evil}", 4e14, 0.0, 2e12),
                work("forward", at(20), f"attention{evil}", 1e14, 0.0, 5e11),
                work("update", None, "", 0.0, 1e12, 5e11),
            ),
        ),
        diagnostics=(
            Finding(
                f"levels-differ{evil}", "warning", f"XLA gathers x, 4.29 GB{evil}", source=at(27), value=f"x{evil}"
            ),
        ),
        source={f"/src/{evil}model.py": {20: f"    q = x @ wq{evil}", 23: "    y = q @ wo"}},
        timings={"partition": 0.123456},
    )

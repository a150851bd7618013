"""Contracts fire and hold: on a made-up report whose numbers are known, and through pytest in a process of its own."""

from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import ContractError, ShardvizError
from shardviz.judge.report import Report
from shardviz.records import Collective, Memory
from shardviz.records.limits import amount_of, limit_of
from tests.view.sample import report

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("100 MB", "B", 1e8),
        ("1.5GB", "B", 1.5e9),
        ("96 GiB", "B", 96 * 2**30),
        ("12 B", "B", 12),
        (12, "B", 12),
        ("5.5 s", "s", 5.5),
        ("20 ms", "s", 0.02),
        ("3 µs", "s", 3e-6),
        ("90 %", "", 0.9),
        ("0.9", "", 0.9),
    ],
)
def test_amounts_are_read(text, unit, number):
    assert amount_of(text, unit) == pytest.approx(number)
    if isinstance(text, str):
        assert limit_of(f"< {text}", unit).number == pytest.approx(number)


@pytest.mark.parametrize(
    ("text", "unit"), [("100", "B"), ("5", "s"), ("5 m", "s"), ("x", ""), ("= 3 s", "s"), ("3 s", "B")]
)
def test_what_is_no_amount_is_refused(text, unit):
    with pytest.raises(ShardvizError, match="expected"):
        limit_of(text, unit)


def test_an_amount_is_read_as_people_type_it():
    for text in ("1048576", "1,048,576", "1048576 B", "1 MiB", "1 mib", "1,024 KiB"):
        assert amount_of(text, "B") == 2**20, text
    assert amount_of("1 mb", "B") == amount_of("1 MB", "B") == 1e6
    assert amount_of("0.002", "s") == amount_of("2 ms", "s")
    for text in ("1,5 MB", "1,04 MB", "10,48,576", "1.048.576", "> 3 MB", "m", "2 Gb", "2 Gib"):
        with pytest.raises(ShardvizError, match="expected an amount such as '100 MB'"):
            amount_of(text, "B")


def test_where_selects():
    found = report().collectives
    assert [c.kind for c in found.where(axes="data")] == ["all-gather", "reduce-scatter"]
    assert [c.kind for c in found.where(axes="model,data")] == ["all-reduce"]
    assert [c.kind for c in found.where(axes=("model",))] == ["all-reduce", "collective-permute"]
    assert [c.count for c in found.where(inside="loop")] == [160, 240, 80, None, 3]
    assert [c.kind for c in found.where(larger_than="500 kB")] == ["all-gather"]
    assert [c.kind for c in found.where(larger_than="262144 B")] == ["all-gather"]
    assert [c.kind for c in found.where(origin="user")] == ["collective-permute"]
    assert [c.kind for c in found.where(line="model.py:23")] == ["all-reduce", "reduce-scatter"]
    assert [c.kind for c in found.where(inside="conditional")] == ["collective-permute"]
    assert len(found.where(("all-gather", "all-to-all"))) == 2
    with pytest.raises(ShardvizError, match="expected one of"):
        found.where("all-gahter")


def test_forbid_names_the_line():
    base = report()
    base.forbid("collective-broadcast")
    base.forbid("all-gather", larger_than="2 GB")
    with pytest.raises(ContractError, match=r"(?s)found 1 collective.*all-gather over data.*model.py:20  q = x @ wq"):
        base.forbid("all-gather", inside="loop")
    assert issubclass(ContractError, AssertionError)


def test_only_is_true_or_says_what_is_otherwise():
    base = report()
    gathers = dataclasses.replace(base, collectives=base.collectives[:1])
    assert gathers.collectives.only("all-gather", axes="data")
    only = base.collectives.only("all-gather", axes="data")
    assert not only and len(only.others) == 5 and "all-reduce over model" in repr(only)
    assert Report.from_json(base.to_json()).collectives.only() and type(base.collectives) is type(gathers.collectives)


def counted(base: Report, opaque: tuple[str, ...] = (), loops: int = 0) -> Report:
    """The report with the collectives whose counts are known, and a cost of which that is known, too, or not."""
    assert base.cost is not None
    work = (*base.cost.work[1:], dataclasses.replace(base.cost.work[0], opaque=opaque))
    cost = dataclasses.replace(base.cost, work=work, unknown_loops=loops)
    return dataclasses.replace(base, collectives=base.collectives[:4], cost=cost)


def test_require_bounds():
    machine = "tpu v5p:4x4x4"
    base = counted(report())
    cost = sv.cost(base, machine)
    base.require(step_time=f"<= {cost.seconds * 1.001} s", target=machine)
    base.require(step_time=f">= {cost.seconds * 0.999} s", target=machine)
    with pytest.raises(ContractError, match=r"step_time <=.* s on tpu v5p:4x4x4 \(compute"):
        base.require(step_time=f"<= {cost.seconds * 0.999} s", target=machine)
    with pytest.raises(ContractError, match="step_time >="):
        base.require(step_time=f">= {cost.seconds * 1.001} s", target=machine)
    moved = sum(c.total_bytes for c in base.collectives)
    base.require(moved=moved)
    with pytest.raises(ContractError, match=r"(?s)moved.*all-gather over data"):
        base.require(moved=moved - 1)
    base.require(memory=base.memory.takes)
    with pytest.raises(ContractError, match="temporaries 38"):
        base.require(memory="<= 40 GB")


def test_what_a_level_cannot_tell_is_no_pass():
    base = dataclasses.replace(report(), memory=None, level="propagated")
    with pytest.raises(ContractError, match="not known at level propagated"):
        base.require(memory="<= 1 PB")
    with pytest.raises(ContractError, match="not known at level propagated"):
        base.require(fits=True, target="tpu v5p:4x4x4")
    small = sv.gallery.mlp()
    with pytest.raises(ContractError, match=r"not known at level propagated \(about .* of 16.9 GB, no plan\)"):
        small.program.propagate(small.plan).require(fits=True, target="tpu v5e:2x4")
    with pytest.raises(ContractError, match="collective of unknown count"):
        base.require(moved="<= 1 PB")


@pytest.mark.parametrize(
    ("unknown", "why"), [({"opaque": ("my_kernel",)}, "FLOPs of my_kernel"), ({"loops": 1}, "a loop's trip count")]
)
def test_an_upper_bound_of_what_is_not_known_is_no_pass(unknown, why):
    machine, base = "tpu v5p:4x4x4", report()
    counted(base).require(step_time="<= 3600 s", target=machine)
    with pytest.raises(ContractError, match=f"because .*{why} (is|are) not known"):
        counted(base, **unknown).require(step_time="<= 3600 s", target=machine)
    counted(base, **unknown).require(step_time=">= 1 us", target=machine)


@pytest.mark.parametrize("fits", [True, False])
def test_fits(fits):
    memory = Memory(
        arguments=10**9, outputs=0, aliased=0, temporaries=10**9, peak=2 * 10**9, target="tpu v5p:4x4x4",
        needed=2 * 10**9, hbm=(3 if fits else 1) * 10**9, fits=fits,
    )  # fmt: skip
    base = dataclasses.replace(report(), memory=memory, level="compiled", target="tpu v5p:4x4x4")
    base.require(fits=fits)
    with pytest.raises(ContractError, match=f"fits={not fits}"):
        base.require(fits=not fits)


def test_the_sharded_share_is_of_global_bytes():
    base = report()  # params['wq'] is cut, x is cut
    base.require(sharded=("params >= 1", "x", ">= 0.5"))
    whole = dataclasses.replace(base.arguments[1], name="params['b']", shape=(8192, 4096), spec=None, dtype="bfloat16")
    whole = dataclasses.replace(whole, shard_shape=whole.shape)
    half = dataclasses.replace(base, arguments=(base.arguments[0], whole))
    half.require(sharded="params >= 0.5")
    with pytest.raises(ContractError, match=r"0.5 of 134 MB; replicated on every device: params\['b'\] 67.1 MB"):
        half.require(sharded="params >= 0.51")
    with pytest.raises(ShardvizError, match="no argument is named 'parms'"):
        half.require(sharded="parms >= 0.9")


def step(w, x):
    return jnp.sum((x @ w) ** 2)


def made(mesh="data", size=4):
    args = [jax.ShapeDtypeStruct((64, 64), "float32"), jax.ShapeDtypeStruct((32, 64), "float32")]
    return sv.analyze(step, *args, mesh={mesh: size}, in_specs=(P(), P(mesh)))


def test_a_golden_holds_and_breaks(tmp_path):
    path = tmp_path / "goldens" / "step.json"
    with pytest.raises(ContractError, match="no golden file"):
        made().check_golden(path)
    made().check_golden(path, update=True)
    made().check_golden(path)
    other = made(size=8)
    with pytest.raises(ContractError, match=r"(?s)mesh: .*arguments: .*update=True"):
        other.check_golden(path)
    golden = json.loads(path.read_text())
    assert path.read_text() == json.dumps(golden, indent=1, sort_keys=True) + "\n"
    assert not {"versions", "timings", "name"} & set(golden)


@pytest.mark.parametrize(
    ("key", "value"),
    [("memory", 3), ("mesh", {"data": "4"}), ("collectives", [{"kind": "all-gather"}]), ("flops", "1")],
)
def test_a_damaged_golden_is_named(tmp_path, key, value):
    path, base = tmp_path / "g.json", report()
    base.check_golden(path, update=True)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ShardvizError, match=rf"golden file g.json is damaged: .*{key}"):
        base.check_golden(path)


def test_tolerances(tmp_path):
    path, base = tmp_path / "g.json", report()
    base.check_golden(path, update=True)
    more = dataclasses.replace(base, memory=dataclasses.replace(base.memory, temporaries=39_000_000_000))
    with pytest.raises(ContractError, match=r"memory, temporaries: 38,000,000,000 → 39,000,000,000 bytes"):
        more.check_golden(path)
    more.check_golden(path, tolerance={"temporaries": "3%"})
    more.check_golden(path, tolerance={"memory": 0.03})
    with pytest.raises(ContractError):
        more.check_golden(path, tolerance={"temporaries": "2%"})
    with pytest.raises(ShardvizError, match="unknown name 'tmporaries'"):
        more.check_golden(path, tolerance={"tmporaries": "2%"})


def test_a_golden_knows_no_versions_names_or_line_numbers(tmp_path):
    path, base = tmp_path / "g.json", report()
    base.check_golden(path, update=True)
    shifted = {file: {number + 100: text for number, text in lines.items()} for file, lines in base.source.items()}

    def later(c: Collective) -> Collective:
        source = c.source and dataclasses.replace(c.source, line=c.source.line + 100)
        return dataclasses.replace(c, source=source, name="other.1", groups="", name_stack="jit(f)/other")

    again = dataclasses.replace(
        base, source=shifted, collectives=tuple(map(later, reversed(base.collectives))), versions={"jax": "9.9.9"}
    )
    known = [c for c in again.collectives if c.source and c.source.text_in(again.source)]
    dataclasses.replace(again, collectives=tuple(known)).collectives.only()
    placed = tuple(c for c in base.collectives if c.source and c.source.text_in(base.source))
    kept = dataclasses.replace(base, collectives=placed)
    kept.check_golden(path, update=True)
    dataclasses.replace(again, collectives=tuple(known)).check_golden(path)


DIGITS = '{"shardviz_golden": 1, "flops": ' + "1" * 5_000 + "}"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"shardviz_golden": 2}', "[" * 100_000, "\0", DIGITS])
def test_a_file_that_is_no_golden_is_refused(tmp_path, text):
    path = tmp_path / "g.json"
    path.write_text(text)
    with pytest.raises(ShardvizError, match="golden file"):
        report().check_golden(path)


@pytest.mark.parametrize("number", [10**4_000, 10**400, float("inf"), float("nan"), -1])
@pytest.mark.parametrize("place", [("flops",), ("memory", "temporaries"), ("collectives", 0, "bytes")])
def test_a_number_that_nothing_has_is_named(tmp_path, number, place):
    """Nor does a tolerance of infinity's share let everything pass."""
    path, base = tmp_path / "g.json", report()
    base.check_golden(path, update=True)
    golden = at = json.loads(path.read_text())
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = number
    path.write_text(json.dumps(golden))
    with pytest.raises(ShardvizError, match=r"golden file g\.json is damaged"):
        base.check_golden(path, tolerance={"bytes": "5%", "flops": "5%", "memory": "5%"})


def test_a_golden_with_half_a_letter_is_damaged_wherever_it_stands(tmp_path):
    path, base = tmp_path / "g.json", report()
    base.check_golden(path, update=True)
    golden = json.loads(path.read_text())
    for key in golden:
        for half in ("\ud800", {"\ud800": "\ud800"}, ["\ud800"], [{"kind": "\ud800"}]):
            path.write_text(json.dumps(golden | {key: half}))
            with pytest.raises(ShardvizError):
                base.check_golden(path)


@pytest.mark.parametrize("name", ["a\0b.json", "\ud800.json", "a" * 300, "file/g.json", "~nobody-of-this-name/g.json"])
def test_a_path_that_no_golden_has_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    for update in (False, True):
        with pytest.raises(ShardvizError):
            report().check_golden(name, update=update)


ODD = "\x1b[31mred\x1b[0m \ud800 \r\n\u202eé"


def test_odd_names_hold_and_are_told_without_what_steers_a_terminal(tmp_path):
    path, base = tmp_path / "g.json", report()
    odd = dataclasses.replace(base, program=ODD)
    odd.check_golden(path, update=True)
    odd.check_golden(path)
    with pytest.raises(ContractError) as caught:
        base.check_golden(path)
    text = str(caught.value)
    assert r"program: \x1b[31mred\x1b[0m \ud800 \r" in text and r"\u202eé" in text
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_each_test_has_a_golden_of_its_own(pytester):
    """Tests that differ in their module, class, parameters or the golden's name alone; and again in another order."""
    module = """
        import pytest
        from tests.view.sample import report
        import dataclasses

        def program(request, part=""):
            return dataclasses.replace(report(), program=request.node.nodeid + part)

        def test_step(golden_report, request):
            golden_report(program(request))
            golden_report(program(request, "b"), "b")

        def test_step_b(golden_report, request):
            golden_report(program(request))

        def test_STEP(golden_report, request):
            golden_report(program(request))

        @pytest.mark.parametrize("name", ["a+b", "a-b", "a b", "a/b", "A-b", "x" * 300, "x" * 301, "é", ""])
        def test_each(golden_report, request, name):
            golden_report(program(request))
            golden_report(program(request, "2"), "2")

        class TestA:
            def test_step(self, golden_report, request):
                golden_report(program(request))

            class TestB:
                def test_step(self, golden_report, request):
                    golden_report(program(request))

        class TestB:
            def test_step(self, golden_report, request):
                golden_report(program(request))
        """
    pytester.makepyfile(test_one=module, test_two=module)
    plugin = ("-p", "shardviz.pytest_plugin", "-p", "no:cacheprovider")
    pytester.runpytest(*plugin, "--update-goldens").assert_outcomes(passed=30)
    pytester.runpytest(*plugin).assert_outcomes(passed=30)
    pytester.runpytest(*plugin, "-k", "test_two and TestB").assert_outcomes(passed=2)
    names = {path.name for path in (pytester.path / "goldens").iterdir()}
    assert len({name.lower() for name in names}) == 50
    assert {"test_one.test_step.json", "test_two.test_step_b.json"} < names
    (nested,) = (name for name in names if name.startswith("test_one.TestA.TestB.test_step."))
    assert len(nested) < 50


def test_one_name_is_for_one_report(pytester):
    pytester.makepyfile(
        """
        from tests.view.sample import report

        def test_step(golden_report):
            golden_report(report())
            golden_report(report())
        """
    )
    failed = pytester.runpytest("-p", "shardviz.pytest_plugin", "-p", "no:cacheprovider", "--update-goldens")
    failed.assert_outcomes(failed=1)
    failed.stdout.fnmatch_lines(["*golden_report was called twice with the name ''*"])


@pytest.mark.long
def test_the_plugin(pytester, monkeypatch):
    pytester.makepyfile(
        """
        import jax, jax.numpy as jnp
        from jax.sharding import PartitionSpec as P
        import shardviz as sv

        def step(w, x):
            return jnp.sum((x @ w) ** 2)

        def made():
            args = [jax.ShapeDtypeStruct((64, 64), "float32"), jax.ShapeDtypeStruct((32, 64), "float32")]
            return sv.analyze(step, *args, mesh={"data": 4}, in_specs=(P(), P("data")))

        def test_golden(golden_report):
            golden_report(made())

        def test_only():
            assert made().collectives.only("all-gather", axes="data")
        """
    )
    plugin = ("-p", "shardviz.pytest_plugin", "-p", "no:cacheprovider")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # what else is installed takes as long as the tests
    pytester.runpytest_subprocess(*plugin).assert_outcomes(failed=2)
    written = pytester.runpytest_subprocess(*plugin, "--update-goldens")
    written.assert_outcomes(passed=1, failed=1)
    written.stdout.fnmatch_lines(["*shardviz: only('all-gather', axes='data')*", "*all-reduce over data, float32*"])
    assert (pytester.path / "goldens" / "test_the_plugin.test_golden.json").exists()
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    pytester.runpytest_subprocess(*plugin, "-k", "golden").assert_outcomes(passed=1)

"""Files of `jax.export`: what is said of one is what JAX's own object says, it explores as the function does,
and nothing that is wrong with a file reaches the kernel.
"""

import collections
import dataclasses
import pickle
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import export
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.compat import export_files as loading
from shardviz.compat.export_files import load
from shardviz.errors import CompileMemoryLimit, MeshError, ParseError, ShardvizError, SpecError, TraceError
from shardviz.notation import Spec
from tests.raw import array

MESH = sv.mesh(data=2, model=4)
F32 = jnp.float32


def named(*spec, mesh=MESH):
    return NamedSharding(mesh, P(*spec))


def placed(*shape, spec=(), dtype=F32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=named(*spec))


def block(params, x, unused, *, scale):
    h = jnp.tanh(x @ params["w"]) * scale
    h = jax.lax.with_sharding_constraint(h, named("data", None))
    return {"y": jax.nn.relu(h @ params["v"]), "sum": h.sum()}


ARGS = (
    {"v": placed(32, 8, spec=("model", None)), "w": placed(16, 32, spec=(None, "model"))},
    placed(8, 16, spec=("data",)),
    placed(3, dtype=jnp.int32),
)


def exported(fn=block, args=ARGS, platforms=("cpu",), **kwargs):
    return export.export(jax.jit(fn), platforms=platforms)(*args, **kwargs)


@pytest.fixture(scope="module")
def of_block():
    return exported(scale=placed())


@pytest.fixture(scope="module")
def data(of_block):
    return bytes(of_block.serialize())


@pytest.fixture(scope="module")
def symbolic():
    b, n = export.symbolic_shape("b, n", constraints=["b >= 8", "mod(b, 4) == 0", "n >= b"])
    fn = jax.jit(lambda x, y: (x @ y.T).sum(axis=1) + jnp.arange(x.shape[0]))
    return export.export(fn, platforms=("tpu", "cpu"))(array(2 * b, 16), array(n, 16))


def seen(report):
    """What a report says of a program, but for the names that JAX does not keep for what nothing uses."""
    collectives = collections.Counter(
        (c.kind, c.axes, c.dtype, c.operand_bytes, c.count, c.source) for c in report.collectives
    )
    values = [(v.shape, v.dtype, v.spec, v.bytes_per_device) for v in (*report.arguments, *report.outputs)]
    return collectives, values, report.cost


class TestWhatItIs:
    def test_the_record_is_what_jax_says(self, of_block, data):
        found, back = load(data), export.deserialize(bytearray(data))
        assert (found.name, found.devices, found.platforms) == (back.fun_name, back.nr_devices, back.platforms)
        for array_, aval in zip(found.arguments, back.in_avals, strict=True):
            assert (array_.shape, array_.dtype) == (tuple(map(str, aval.shape)), str(aval.dtype))
        for array_, aval in zip(found.results, back.out_avals, strict=True):
            assert (array_.shape, array_.dtype) == (tuple(map(str, aval.shape)), str(aval.dtype))
        shardings = back.in_shardings_jax(MESH)
        assert [a.spec for a in found.arguments] == [
            s and Spec.of(s.spec, len(aval.shape)) for s, aval in zip(shardings, back.in_avals, strict=True)
        ]
        kept = [i for i, a in enumerate(found.arguments) if a.kept]
        assert kept == list(back.module_kept_var_idx) and len(kept) == 4
        assert (found.module_bytes, found.file_bytes) == (len(back.mlir_module_serialized), len(data))
        assert found.record.mesh.shape == {"data": 2, "model": 4}

    def test_names_are_those_of_the_function(self, data):
        assert [a.name for a in load(data).arguments] == ["params['v']", "params['w']", "x", "args[2]", "scale"]
        assert [r.name for r in load(data).results] == ["result['sum']", "result['y']"]

    def test_it_prints_itself_and_escapes_names(self, of_block, data):
        text, html = repr(load(data)), load(data)._repr_mimebundle_()["text/html"]
        for word in ("params['w']", "P(None, 'model')", "data=2,model=4", "not used"):
            assert word in text
        hostile = exported(lambda x: {"<script>alert(1)</script>": x}, (array(4),))
        page = load(bytes(hostile.serialize()))._repr_mimebundle_()["text/html"]
        assert "<script" not in page and "&lt;script" in page
        steering = dataclasses.replace(of_block, fun_name="\x1b[2J<b>")
        shown = load(bytes(steering.serialize()))
        assert "\x1b" not in repr(shown) and "&lt;b&gt;" in shown._repr_mimebundle_()["text/html"]
        assert "data=2" in html and "<b>block</b>" in html

    def test_path_bytes_and_object_say_the_same(self, of_block, data, tmp_path):
        (tmp_path / "block.jax").write_bytes(data)
        from_path, from_bytes = load(tmp_path / "block.jax"), load(data)
        assert from_path.record == from_bytes.record
        assert from_path.record.arguments == load(of_block).record.arguments


class TestExplored:
    @pytest.mark.parametrize("way", ["object", "file", "sv.trace"])
    def test_it_explores_as_the_function_does(self, of_block, data, way):
        function = sv.trace(block, *ARGS, scale=placed())
        program = {
            "object": lambda: load(of_block).program(),
            "file": lambda: load(data).program(),
            "sv.trace": lambda: sv.trace(of_block),
        }[way]()
        assert program.plan().mesh == function.plan().mesh
        for plan in (
            function.plan(),
            sv.Plan({"data": 4, "model": 2}, ({"v": None, "w": P("model")}, P("data"), None)),
        ):
            theirs = plan if plan.in_specs is not None else program.plan()
            assert seen(program.partition(theirs)) == seen(function.partition(plan))
            assert seen(program.propagate(theirs)) == seen(function.propagate(plan))
        assert program.partition(program.plan()).collectives

    def test_a_plan_without_the_axes_inside_says_which(self, data):
        with pytest.raises(ShardvizError, match="'data'"):
            load(data).program().partition(sv.Plan("other=8"))

    def test_shard_map_keeps_its_mesh(self):
        body = jax.shard_map(
            lambda a: jax.lax.psum(a, "model"), mesh=MESH, in_specs=P("data", "model"), out_specs=P("data", None)
        )
        program = sv.trace(exported(body, (placed(8, 8, spec=("data", "model")),)))
        assert [(c.kind, c.axes, c.origin) for c in program.partition(program.plan()).collectives] == [
            ("all-reduce", ("model",), "user")
        ]
        with pytest.raises(MeshError, match="shard_map"):
            program.partition(program.plan("data=4,model=4"))

    def test_random_keys_have_the_shape_that_jax_shows(self):
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 8))
        program = sv.trace(exported(lambda k: jax.vmap(jax.random.uniform)(k), (keys,)))
        report = program.partition(program.plan("x=2", (P("x"),)))
        assert [v.shard_shape for v in report.arguments] == [(4,)]

    def test_arguments_can_be_given_and_are_checked(self, symbolic):
        program = sv.trace(symbolic, array(16, 16), array(8, 16))
        assert [a.shape for a in program.arguments] == [(16, 16), (8, 16)]
        with pytest.raises(TraceError, match="cannot be called so"):
            sv.trace(symbolic, array(16, 15), array(8, 16))
        with pytest.raises(TraceError, match="donate_argnums"):
            sv.trace(symbolic, array(16, 16), array(8, 16), donate_argnums=0)

    def test_sv_explore_takes_one(self, data):
        state = sv.explore(load(data)).state
        assert state.plan.mesh.shape == {"data": 2, "model": 4}


@pytest.mark.long
class TestSymbols:
    def test_symbols_and_constraints_survive_the_file(self, symbolic):
        found = load(bytes(symbolic.serialize()))
        assert found.symbols == ("b", "n") and [a.shape for a in found.arguments] == [("2*b", "16"), ("n", "16")]
        assert {"b>=8", "mod(b,4)==0"} <= {c.replace(" ", "") for c in found.constraints}

    @pytest.mark.parametrize("from_file", [False, True])
    def test_values_make_a_program(self, symbolic, from_file):
        found = load(bytes(symbolic.serialize()) if from_file else symbolic)
        program = found.program({"b": 8, "n": 12})
        assert [a.shape for a in program.arguments] == [(16, 16), (12, 16)]
        report = program.partition(program.plan("x=4", (P("x"), None)))
        assert report.outputs[0].shape == (16,) and report.outputs[0].shard_shape == (4,)
        assert report.cost.dot_flops == 2 * 16 * 12 * 16 / 4
        assert "?" not in program.texts(program.plan("x=4"))["stablehlo"]

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            (None, ["b, n", "symbols="]),
            ({"b": 8}, ["n ", "symbols="]),
            ({"b": 10, "n": 12}, ["4*floordiv(b, 4) == b", "found -2"]),
            ({"b": 4, "n": 8}, ["b>=8", "found -4"]),
            ({"b": 16, "n": 12}, ["n>=b", "found -4"]),
            ({"b": 8, "n": 8, "c": 1}, ["'c'", "b, n"]),
            ({"b": "8", "n": 8}, ["b", "'8'"]),
            ({"b": True, "n": 8}, ["b", "True"]),
        ],
    )
    def test_values_that_do_not_do_are_told_why(self, symbolic, values, words):
        for source in (symbolic, bytes(symbolic.serialize())):
            with pytest.raises(SpecError) as error:
                load(source).program(values)
            said = str(error.value).replace(" >= ", ">=")
            assert all(word in said for word in words), said

    def test_fixed_dimensions_take_no_values(self, data):
        with pytest.raises(SpecError, match="fixed"):
            load(data).program({"b": 8})


def test_complex_constants_are_read():
    program = load(exported(lambda x: x * 2j + 1, (array(8, dtype=jnp.complex64),))).program()
    assert [o.dtype for o in program.propagate(program.plan("x=2")).outputs] == ["complex64"]


class Spy:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.write_text, (Path(self.path), "run")


@pytest.mark.long
class TestBadFiles:
    @pytest.mark.parametrize(
        ("content", "word"),
        [
            (b"", "empty"),
            (b"no export at all", "not an export"),
            (bytes(range(256)) * 8, "not an export"),
            (b"\x00" * 4096, "not an export"),
            (b"module @jit_f {}" * 8, "MLIR as text"),
            (b"HloModule jit_f" * 8, "HLO"),
        ],
    )
    def test_bytes_that_are_none(self, content, word):
        with pytest.raises(ParseError, match=word):
            load(content)

    def test_a_path_that_is_none(self, tmp_path):
        with pytest.raises(ShardvizError, match="cannot be read: No such file"):
            load(tmp_path / "nothing")
        with pytest.raises(ShardvizError, match="Is a directory"):
            load(tmp_path)
        with pytest.raises(ShardvizError, match="cannot be read"):
            load("a\0b")
        with pytest.raises(ShardvizError, match="int"):
            load(3)

    @pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
    def test_a_pickle_is_never_run(self, tmp_path, protocol):
        with pytest.raises(ParseError, match="pickle"):
            load(pickle.dumps(Spy(str(tmp_path / "ran")), protocol) + b" " * 64)
        assert not (tmp_path / "ran").exists()

    def test_types_that_nobody_registered_are_not_made(self, tmp_path):
        Pair = collections.namedtuple("Pair", "a b")
        name = f"test.{tmp_path.name}.Pair"
        export.register_namedtuple_serialization(Pair, serialized_name=name)
        file = bytes(exported(lambda p: p.a + p.b, (Pair(array(4), array(4)),)).serialize())
        assert [a.shape for a in load(file).arguments] == [("4",), ("4",)]
        with pytest.raises(ParseError, match="type"):
            load(file.replace(name.encode(), ("x" * len(name)).encode()))

    @settings(max_examples=25)
    @given(st.data())
    def test_any_damage_is_told_or_does_not_matter(self, data, draw):
        kind = draw.draw(st.sampled_from(["cut", "flip", "zero", "insert"]))
        at = draw.draw(st.integers(0, len(data) - 1))
        many = draw.draw(st.integers(1, 16))
        if kind == "cut":
            bad = data[:at]
        elif kind == "zero":
            bad = data[:at] + bytes(many) + data[at + many :]
        elif kind == "insert":
            bad = data[:at] + draw.draw(st.binary(min_size=many, max_size=many)) + data[at:]
        else:
            bad = data[:at] + bytes([data[at] ^ draw.draw(st.integers(1, 255))]) + data[at + 1 :]
        try:
            found = load(bad)
            repr(found)
            program = found.program()
            program.propagate(program.plan())
        except ShardvizError as error:
            assert str(error)

    @pytest.mark.parametrize(
        ("word", "zeros"), [(b"sdy.sharding\0j", b"sdy." + bytes(10)), (b"sdy.sharding", b"sd\0.sharding")]
    )
    def test_an_attribute_that_no_dialect_has_is_told(self, data, word, zeros):
        bad = data.replace(word, zeros)
        assert bad != data
        with pytest.raises(ShardvizError, match=r"damaged"):
            program = load(bad).program()
            program.propagate(program.plan())

    @pytest.mark.parametrize(
        "word", [b"jax.result_info", b"sdy.sharding", b"sym_name", b"stablehlo.mesh", b"mesh", b"x"]
    )
    def test_names_that_are_no_text_leave_the_kernel_alone(self, data, word):
        bad = data.replace(word, b"\xff" * len(word))  # MLIR's bindings end their process over some of these
        try:
            program = load(bad).program()
            program.propagate(program.plan())
        except ShardvizError as error:
            assert str(error)

    def test_what_brings_the_reader_down_leaves_the_kernel_alone(self, data, monkeypatch):
        monkeypatch.setattr(loading, "_MEMORY", 1.0)  # the reader is killed for its memory
        with pytest.raises(ParseError, match="damaged") as error:
            load(data)
        assert isinstance(error.value.__cause__, CompileMemoryLimit)

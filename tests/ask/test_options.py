"""Compiler options: in a plan and its key, in compiles, sweeps, code and files; and what the compiler says of them."""

import json
import pickle
import shlex

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import CompileCrashed, CompileRefused, ShardvizError
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.files import read_session, session_json
from shardviz.paint.text import text_of
from shardviz.records.options import nearest, options_of, options_text
from shardviz.study.proposing import plan_of
from shardviz.view.subjects import document

FAST = {"xla_cpu_enable_fast_math": True, "xla_backend_optimization_level": 0}


def f(w, x):
    return jnp.tanh(x @ w).sum()


@pytest.fixture(scope="module")
def program():
    return sv.trace(f, jax.ShapeDtypeStruct((64, 64), jnp.float32), jax.ShapeDtypeStruct((16, 64), jnp.float32))


@pytest.fixture(scope="module")
def plan():
    return sv.Plan({"data": 8}, in_specs=(P("data"), P("data")))


# What they are


def test_they_are_part_of_a_plans_key(plan):
    a, b = plan.with_options({"xla_a": 1, "xla_b": "x"}), plan.with_options({"xla_b": "x"}).with_options("xla_a=1")
    assert a == b and hash(a) == hash(b) and a != plan and a.with_options({}, only=True) == plan
    assert len({plan.with_options({"xla_a": value}) for value in (True, 1, 1.0, "1", False, 0, "True")}) == 7
    assert pickle.loads(pickle.dumps(a)) == a
    assert a.with_spec("w", P()).options == a.with_mesh({"data": 4}).options == a.options
    assert sv.Plan({"data": 8}, options="--xla_a=true --xla_c=-1.5").options == {"xla_a": True, "xla_c": -1.5}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("--xla_a=true xla_b=FALSE", {"xla_a": True, "xla_b": False}),
        ("xla_a=24 xla_b=-1 xla_c=1.5 xla_d=ENABLED", {"xla_a": 24, "xla_b": -1, "xla_c": 1.5, "xla_d": "ENABLED"}),
        ("xla_a=x,y 'xla_b=one two' xla_c=", {"xla_a": "x,y", "xla_b": "one two", "xla_c": ""}),
        ("xla_a=1 xla_a=2", {"xla_a": 2}),
    ],
)
def test_flags_are_read_as_the_environment_has_them(text, options):
    read = options_of(text)
    assert read == options and [*map(type, read.values())] == [*map(type, options.values())]


NAMES = st.from_regex(r"\A[a-z_][a-z0-9_]{0,20}\Z").filter(lambda name: not name.startswith("xla_dump_"))


@given(st.dictionaries(NAMES, st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.sampled_from(["a b", "'", ""])))
def test_text_is_read_back(options):
    read = options_of(options_text(options))
    assert read == options and options_of([{}, options]) == options


def test_a_set_is_what_its_source_has():
    assert len(sv.gallery.option_sets) > 10
    for name, each in sv.gallery.option_sets.items():
        assert options_of(name) == options_of(options_text(each.options)) == dict(each.options)
        assert shlex.split(name) == [name] and each.source.startswith("https://") and each.text.endswith(".")
    both = options_of(["host-offload", {"xla_latency_hiding_scheduler_rerun": 5}])
    assert both["xla_latency_hiding_scheduler_rerun"] == 5 and both["xla_tpu_host_transfer_overlap_limit"] == 24
    assert nearest("xla_tpu_enable_async_collective_fusions") == "xla_tpu_enable_async_collective_fusion"
    assert not nearest("xla_foo")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"x y": 1}, "options['x y']: expected a compiler option's name of letters, digits and _ only"),
        ({"<img src=x onerror=alert(1)>": 1}, "letters, digits and _ only"),
        ({"xla_a\n": 1}, "letters, digits and _ only"),
        ({3: 1}, "options[3]: expected a compiler option"),
        ({"x" * 300: 1}, "letters, digits and _ only"),
        ({"xla_dump_to": "/tmp"}, "read report.stages"),
        ({"xla_a": None}, "options['xla_a']=None: expected a bool, a 64-bit number or a text"),
        ({"xla_a": 2**64}, "a 64-bit number"),
        ({"xla_a": float("nan")}, "a 64-bit number"),
        ({"xla_a": [1]}, "expected a bool"),
        ("xla_a=" + "1" * 20_000, "at most 10,000 characters"),
        ("'xla_a=1", "No closing quotation"),
        (
            "fast",
            "neither a flag such as xla_a=true nor a set of options; sv.gallery.option_sets has data-parallel-overlap",
        ),
        (3, "options=3: expected a mapping"),
    ],
)
def test_what_can_be_no_option_is_refused(plan, options, words):
    with pytest.raises(ShardvizError) as error:
        plan.with_options(options)
    assert words in str(error.value)


# In a compile


def test_the_compiler_is_given_them(program, plan):
    fast, bare = program.compile(plan, options=FAST), program.compile(plan)
    assert fast.plan == program.bind(plan.with_options(FAST)) and not bare.plan.options
    plain = program.compile(plan, options={"xla_disable_hlo_passes": "tree_reduction_rewriter"})
    count = [report.stages["optimized"].count(" reduce-window(") for report in (bare, plain, program.compile(plan))]
    assert count == [1, 0, 1], "the compiler does as it is told, and no answer of one stands in for the other"
    assert not [each for each in fast.findings if each.id == "options-left-out"]
    assert program.partition(plan, options=FAST).plan.options == FAST
    assert program.submit(plan, "compiled", options=FAST).result().plan.options == FAST


def test_a_level_without_a_compiler_says_so(program, plan):
    report = program.propagate(plan.with_options(FAST))
    (note,) = [each for each in report.findings if each.id == "options-left-out"]
    assert note.severity == "note" and ", ".join(FAST) in note.text
    assert not [each for each in program.propagate(plan).findings if each.id == "options-left-out"]


def test_a_report_keeps_them(program, plan):
    options = {"xla_a": True, "xla_b": -1, "xla_c": 0.5, "xla_d": "<img src=x>&"}
    report = program.propagate(plan.with_options(options))
    again = sv.Report.from_json(report.to_json())
    assert again == report and again.plan.options == options
    assert "xla_a=true xla_b=-1 xla_c=0.5" in report.text()
    assert "<img" not in report.html() and "xla_d=&lt;img src=x&gt;&amp;" in report.html()
    data = json.loads(report.to_json())
    del data["plan"]["options"]  # as it was written before there were any
    assert not sv.Report.from_json(json.dumps(data)).plan.options
    for name, value in (("<script>", 1), ("xla_a", None), ("xla_a", [1]), ("xla_a", float("nan")), ("xla_a", 2**70)):
        data["plan"]["options"] = {name: value}
        with pytest.raises(ShardvizError, match="damaged"):
            sv.Report.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"xla_foo": 1}, "options['xla_foo'] for cpu: the compiler refused the program"),
        ({"xla_foo": 1, **FAST}, "No such compile option: 'xla_foo'"),
        ({"xla_cpu_enable_fast_math": "banana"}, "'banana' is not a valid bool value"),
        ({"xla_backend_optimization_level": 1.5}, "options['xla_backend_optimization_level'] for cpu"),
        ("fused-all-gather", "options['xla_tpu_enable_async_collective_fusion"),
    ],
)
def test_what_the_compiler_does_not_take_it_says_itself(program, plan, options, words):
    with pytest.raises(CompileRefused) as error:
        program.compile(plan, options=options)
    assert words in str(error.value)


def test_an_option_that_leaves_the_partitioner_out_is_named(program, plan):
    with pytest.raises(CompileCrashed, match="compiled with xla_disable_hlo_passes=spmd-partitioning"):
        program.compile(plan, options={"xla_disable_hlo_passes": "spmd-partitioning"})
    assert program.compile(plan).level == "compiled"


# In sweeps, comparisons, code and files


def test_a_sweep_is_over_options(program, plan):
    over = {"options": ["", FAST, {"xla_foo": 1}], "target": ["cpu"]}
    found = sv.sweep(lambda: (program, plan), over=over, level="compiled", progress=False)
    bare, fast, refused = found.rows
    assert not bare.report.plan.options and fast.report.plan.options == FAST
    assert refused.report is None and "No such compile option: 'xla_foo'" in refused.trouble
    assert "xla_cpu_enable_fast_math=True,xla_backend_optimization_level=0" in found.text()
    own = sv.sweep(lambda options: (program, plan), over={"options": ["a", "b"]}, progress=False)
    assert [row.report.plan.options for row in own.rows] == [{}, {}], "what make takes is its own"


def test_a_comparison_says_which_report_has_which(program, plan):
    compared = sv.compare(*(program.propagate(each) for each in (plan, plan.with_options(FAST))))
    assert compared.options == {"a": {}, "b": FAST} and options_text(FAST) in compared.text()
    assert [each["options"] for each in json.loads(compared.to_json())["reports"]] == [{}, FAST]


def test_code_has_them(program, plan):
    chosen = plan.with_options(FAST)
    built = {}
    exec(program.plan_code(chosen), built)
    assert built["plan"].options == chosen.options and program.bind(built["plan"]) == program.bind(chosen)
    assert "compiler_options={\n        'xla_cpu_enable_fast_math': True," in program.code(chosen)
    assert "compiler_options" not in program.code(plan)


def test_cards_of_one_plan_with_other_options(program, plan, tmp_path):
    state = ExplorerState(program, plan, debounce=60, level="propagated")
    assert state.pin("fast") and state.set_options("xla_a=true xla_b=-1")
    assert state.plan.options == {"xla_a": True, "xla_b": -1} and state.deck.now.plan.options
    one, other = (card.results for card in (state.deck.cards[0], state.deck.now))
    assert one.bound.options == {} and other.bound.options == {"xla_a": True, "xla_b": -1}
    assert "with xla_a=true xla_b=-1;" in text_of(document(state.deck), 200)
    assert state.set_options("xla_a=1") and state.plan.options == {"xla_a": 1}, "1 is another option than true"
    assert state.undo() and state.plan.options == {"xla_a": True, "xla_b": -1}
    assert not state.set_options("nothing") and "neither a flag" in state.error["message"]
    assert state.error["place"] == "options" and state.plan.options["xla_b"] == -1
    (tmp_path / "session.json").write_text(session_json(state))
    assert read_session(tmp_path / "session.json", program, debounce=60, level="propagated").plan.options == {
        "xla_a": True,
        "xla_b": -1,
    }
    assert state.undo() and not state.plan.options and state.set_options({"xla_a": "x"})


def test_presets_and_fixes_keep_them(program, plan):
    chosen = plan.with_options("xla_tpu_scoped_vmem_limit_kib=65536")
    assert plan_of(program.propagate(chosen)).options == chosen.options
    state = ExplorerState(program, chosen, debounce=60, level="propagated")
    state.try_presets()
    assert state.now.presets.items and not state.now.presets.busy
    assert [preset.plan.options for preset in state.now.presets.items] == [chosen.options] * len(
        state.now.presets.items
    )
    found = sv.search(program, "tpu v5e:2x4", plan=chosen, seconds=2, level="propagated", most=4)
    assert found.tried and all(each.plan.options == chosen.options for each in found.tried)


# TPUs


@pytest.mark.tpu
def test_a_tpus_compiler_says_what_it_does_not_know(program, plan):
    with pytest.raises(CompileRefused) as error:
        program.compile(plan, "tpu v5e:2x4", options={"xla_tpu_enable_async_collective_fusions": True})
    assert "options['xla_tpu_enable_async_collective_fusions'] for tpu v5e:2x4" in str(error.value)
    assert "No such compile option" in str(error.value)
    assert "did you mean 'xla_tpu_enable_async_collective_fusion'?" in str(error.value)


@pytest.mark.tpu
@pytest.mark.parametrize("name", [name for name in sv.gallery.option_sets if not name.startswith("gpu")])
def test_a_tpus_compiler_knows_every_option_of_a_set(program, plan, name):
    """It may refuse what they ask for, as of a chip that has none of it, but no name and no value."""
    try:
        assert program.compile(plan, "tpu v5e:2x4", options=name).plan.options
    except CompileRefused as error:
        assert "No such compile option" not in str(error) and "Failed to parse" not in str(error)


def layers(weights, x):
    def layer(h, pair):
        return jax.nn.relu(h @ pair[0]) @ pair[1], None

    def loss(weights, x):
        return (jax.lax.scan(layer, x, weights)[0].astype(jnp.float32) ** 2).sum()

    return jax.tree.map(lambda w, g: w - g.astype(w.dtype), weights, jax.grad(loss)(weights, x))


@pytest.fixture(scope="module")
def scanned():
    shape = lambda *sizes: jax.ShapeDtypeStruct(sizes, jnp.bfloat16)
    program = sv.trace(layers, (shape(8, 2048, 8192), shape(8, 8192, 2048)), shape(8192, 2048), donate_argnums=0)
    specs = (P(None, "data"), P(None, "data"))
    plan = sv.Plan({"data": 16}, in_specs=(specs, P("data")), out_specs=specs)
    return program, plan, program.compile(plan, "tpu v5e:4x4")


def exposed(report):
    return sum(each.seconds for each in sv.timeline(report, "tpu v5e:4x4").exposed)


@pytest.mark.tpu
def test_without_the_scheduler_more_communication_is_exposed(scanned):
    program, plan, before = scanned
    after = program.compile(plan, "tpu v5e:4x4", options={"xla_tpu_enable_latency_hiding_scheduler": False})
    assert exposed(after) > exposed(before)
    assert sv.timeline(after, "tpu v5e:4x4").seconds > sv.timeline(before, "tpu v5e:4x4").seconds


@pytest.mark.tpu
def test_without_collective_matmul_products_wait_for_whole_all_gathers(scanned):
    program, plan, before = scanned
    after = program.compile(plan, "tpu v5e:4x4", options="collective-matmul-off")
    kinds = [{run.collective.kind for run in report.target_collectives} for report in (before, after)]
    assert "collective-permute" in kinds[0] and "collective-permute" not in kinds[1]
    assert exposed(after) > exposed(before) and after.memory.peak > before.memory.peak


@pytest.mark.cuda
def test_a_gpus_compiler_takes_the_sets_for_it(program, plan):
    assert program.compile(plan, "gpu h100:1x8", options="gpu-latency-hiding").plan.options

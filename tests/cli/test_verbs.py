"""Every verb: right input, wrong input, interrupted, piped, without a terminal, narrow; JSON as its schema says."""

from __future__ import annotations

import gc
import io
import json
import os
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jsonschema
import pytest
from msgspec import json as msgspec_json

import shardviz as sv
from shardviz.cli import main
from shardviz.cli.schemas import SCHEMAS, schema_of
from shardviz.cli.verbs import cli
from shardviz.costs.timeline import Timeline
from shardviz.paint.columns import text_width
from tests.cli.conftest import MODEL

ARRAY = "bf16[8192,4096]"
POD = ("--target", "tpu v5p:2x2x2")
QUICK = ("--level", "propagated")
PRESS = "import signal; signal.raise_signal(signal.SIGINT)"

TRAIN = ("train", *QUICK)
MLP = ("report", "mlp", *POD, *QUICK)

RIGHT = {
    "report": ("report", *TRAIN),
    "check": ("check", *TRAIN, "--forbid", "any inside loop"),
    "compare": ("compare", "old.json", "new.json"),
    "why": ("why", "train", "params['up']"),
    "fixes": ("fixes", *TRAIN, "--findings", "1"),
    "search": ("search", *TRAIN, "--seconds", "1", "--keep-mesh", "--pin", "x=P('data')"),
    "sweep": ("sweep", "stranger:make", "--over", "batch=256,512", "--mesh", "data=2,model=4", *POD),
    "timeline": ("timeline", *TRAIN),
    "show": ("show", ARRAY, "P('data', None)", "--mesh", "data=4,model=2"),
    "reshard": ("reshard", "stranger:params", "P('model')", "P(None, 'model')", "--mesh", "data=2,model=4", *POD),
    "checkpoint": ("checkpoint", "stranger:params", "P('model')", "P(None, 'model')", "--mesh", "data=2,model=4", *POD),
    "together": ("together", "one=train", "other=train", "--calls", "one=2", *POD),
    "targets": ("targets",),
    "doctor": ("doctor",),
    "skill": ("skill",),
    "schema": ("schema", "report"),
    "completion": ("completion", "bash"),
}
"""Verb → right input. `lab` and `mcp` serve until they are ended: test_lab_and_doctor.py, tests/ship/test_mcp.py;
`comment` wants a repository of git: tests/ship/test_comment.py."""
WRONG = [
    (("why", "mlp"), "STEP: which one?"),
    (("why", "mlp", "a", "b"), "expected [STEP] VALUE, not 3 words"),
    (("why", "mlp", "nonesuch"), "the propagated report has no value of this name"),
    (("why", "mlp", "all-to-all"), "there is no such collective at level propagated; there are all-gather"),
    (("fixes", "mlp", "--findings", "0"), "0 is not in the range x>=1"),
    (("search", "mlp"), "--target: a search needs a machine with a known speed"),
    (("search", "mlp", *POD, "--seconds", "0"), "0.0 is not in the range x>0"),
    (("search", "mlp", *POD, "--pin", "x"), "--pin 'x': expected NAME=VALUE"),
    (("sweep", "gallery:mlp"), "Missing option '--over'"),
    (("sweep", "gallery:mlp", "--over", "batch"), "--over 'batch': expected NAME=A,B,..."),
    (("sweep", "gallery:nonesuch", "--over", "a=1"), "or one of mlp, llama-8b"),
    (("timeline", "mlp"), "name a real machine such as 'tpu v5e:4x4'"),
    (("show", "bf16[8192", "P()", "--mesh", "x=2"), "ARRAY 'bf16[8192': expected an element type and a shape"),
    (("show", ARRAY, "P('y')", "--mesh", "x=2"), "the mesh has no axis 'y'; it has 'x'"),
    (("show", ARRAY, "P()"), "Missing option '--mesh'"),
    (("reshard", ARRAY, "P()", "P('y')", "--mesh", "x=2"), "the mesh has no axis 'y'"),
    (("reshard", ARRAY, "P()", "P('x')", "--mesh", "x=16", *POD), "16 devices, but tpu v5p:2x2x2 has 8"),
    (("reshard", ARRAY, "P()", "P()", *("--mesh", "x=2") * 3), "--mesh: 3 values; give one, or one before and one"),
    (("reshard", ARRAY, "P()", "P()", "--mesh", "x=2", "--limit", "many"), "--limit='many': expected an amount such"),
    (("checkpoint", ARRAY, "P()", "--mesh", "x=8", "--processes", "3"), "8 devices do not divide by 3 processes"),
    (("together", "train"), "NAME=STEP 'train': expected NAME=VALUE"),
    (("together", "a=train"), "1 program; give two or more by name"),
    (("together", "a=train", "b=train", "--shared", "parms"), "a has no array at 'parms'"),
    (("together", "a=train", "b=train", "--calls", "a=many"), "--calls a=many: expected a number"),
    (("together", "a=train", "b=train", "--cache", "kv"), "memory(cache='kv'): no program has an argument"),
    (("compare", "nonesuch.json", "new.json"), "OLD: 'nonesuch.json' cannot be read: No such file"),
    (("compare", "pyproject.toml", "new.json"), "OLD: this is not a shardviz report: not JSON"),
    (("check",), "train: there is nothing to check"),
    (("check", "mlp", "--forbid", "gather"), "--forbid 'gather': expected a kind of collective"),
    (("check", "mlp", "--max-step-time", "5s"), "--max-step-time: a step's time needs a machine; give --target"),
    (("check", "mlp", *POD, "--max-step-time", "5"), "--max-step-time: step_time='<= 5': expected a bound such as"),
    (("check", "mlp", *POD, "--max-step-time", "+5%"), "--max-step-time +5%: this limit is relative to a base"),
    (("check", "mlp", "--max-memory", "90%"), "--max-memory 90%: this limit is relative to a machine; give --target"),
    (("schema", "nonesuch"), "VERB 'nonesuch': it prints no JSON; there are run, report, compare"),
    (("run", "--devices", "8"), "shardviz run needs a script after its options, such as: shardviz run"),
    (("run", "--taget", "tpu v5e:2x4", "train.py"), "No such option '--taget'"),
    (("run", "missing.py"), "there is no file 'missing.py'; for a module write: python -m missing.py"),
    (("completion", "csh"), "'csh' is not one of 'bash', 'zsh', 'fish'"),
    (("lab", "--port", "x"), "'x' is not a valid integer"),
    (("report", "mlp", *QUICK, "--out", "report.docx"), "'.docx' is not a supported kind of file"),
    (("report", "mlp", *QUICK, "--out", "no/such/folder.md"), "there is no folder 'no/such'"),
    (("comment",), "Missing option '--base'"),
    (("targets", "all"), "Got unexpected extra argument (all)"),
    (("doctor", "--all"), "No such option '--all'"),
    (("skill", "jax"), "Got unexpected extra argument (jax)"),
    (("mcp", "--port", "1"), "No such option '--port'"),
    (("report", "mlp", "--mesh", ""), "Invalid value for '--mesh': it is empty; give a value, or leave it out"),
    (("report", "mlp", "--tokens", "nan"), "'nan' is no finite number"),
    (("report", "mlp", "--tokens", "0"), "0.0 is not in the range x>0"),
    (("why", "mlp", " "), "it is empty"),
    (("show", "bf16[99999999999999999999]", "P()", "--mesh", "x=2"), "an array's has fewer than 2^63"),
    (("check", "train", *QUICK, "--forbid", "all-gather over modle"), "no mesh has an axis 'modle'; there are data"),
    (("check", "train", *QUICK, "--forbid", "any over data over model"), "'over' occurs twice"),
    (("sweep", "gallery:mlp", "--over", "batch=1", "--over", "batch=2"), "--over batch: it is given twice"),
    (("sweep", "stranger:make", "--over", "btach=8", "--mesh", "x=2"), "none of the 1 point has an answer; the first"),
    (("lab", "--port", "99999"), "99999 is not in the range 0<=x<=65535"),
    (("reshard", "stranger:nonesuch", "P()", "P()", "--mesh", "x=2"), "stranger has no 'nonesuch'"),
    (("reshard", "stranger:params", "P('y')", "P()", "--mesh", "x=2"), "the mesh has no axis 'y'"),
]  # fmt: skip
MORE = {
    "why a collective": ("why", "train", "all-gather"),
    "why an axis that is not there": ("why", "train", "params['down']", "--axis", "data"),
    "together, memory": ("together", "one=train", "other=train", "--memory", *POD),
    "together, search": ("together", "one=train", "other=train", "--search", "--seconds", "1", *POD),
    "reshard to another mesh": ("reshard", ARRAY, "P('x')", "P('y')", "--mesh", "x=8", "--mesh", "y=4"),
    "reshard one array": ("reshard", ARRAY, "P('data', None)", "P(None, 'data')", "--mesh", "data=8", *POD),
}
AS_IT_IS = ("skill", "schema", "completion", "targets", "doctor")
"""What prints JSON, Markdown, a script or a list, which are as wide as they are."""
ASKS_THE_PERSON = (
    "report",
    "check",
    "why",
    "fixes",
    "search",
    "sweep",
    "timeline",
    "reshard",
    "checkpoint",
    "together",
)
"""What runs code of the person before it answers."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two reports of one program as files."""
    folder = tmp_path_factory.mktemp("reports")
    for name, mesh in (("old", "data=2,model=4"), ("new", "data=4,model=2")):
        assert main(("report", "mlp", "--mesh", mesh, *POD, *QUICK, "-q", "--out", f"{folder}/{name}.json")) == 0
    return folder


@pytest.fixture
def folder(project, saved):
    """The project, with two reports."""
    for file in saved.iterdir():
        shutil.copy(file, project)
    return project


@pytest.fixture
def reports(saved):
    """The files of two reports of one program."""
    return f"{saved}/old.json", f"{saved}/new.json"


def files(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_every_verb_stands_in_the_tables():
    assert {*RIGHT, "comment", "lab", "mcp", "run"} == {*cli.commands} == {words[0] for words, _ in WRONG}


@pytest.mark.parametrize("words", (RIGHT | MORE).values(), ids=RIGHT | MORE)
def test_right_input_into_a_pipe_without_a_terminal_and_narrow(folder, capsys, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "44")
    before = files(folder)
    reading, writing = os.pipe()
    with ThreadPoolExecutor(1) as pool, open(reading) as reader:
        text = pool.submit(reader.read)
        with open(writing, "w") as pipe:
            monkeypatch.setattr(sys, "stdout", pipe)
            code = main((*words, "--out", "answer.json"))
        told = text.result()
    assert code == 0 and told.strip() and "\x1b" not in told
    assert all(line.startswith("shardviz: ") for line in capsys.readouterr().err.splitlines())
    assert files(folder) - before == {"answer.json"}
    lines = told.splitlines()
    wide = [] if words[0] in AS_IT_IS else [line for line in lines if text_width(line) > 44]
    assert len(wide) <= 0.02 * len(lines), wide
    data = json.loads((folder / "answer.json").read_text())
    if words[0] in SCHEMAS:
        jsonschema.validate(data, schema_of(words[0]))
        version = next(iter(data))
        assert version.startswith("shardviz_") and data[version] == 1
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(data | {"nonesuch": 1}, schema_of(words[0]))


class CtrlC(io.StringIO):
    """Standard output of somebody who presses Ctrl-C as soon as something is printed."""

    def write(self, text: str) -> int:
        signal.raise_signal(signal.SIGINT)
        return len(text)


@pytest.mark.parametrize("verb", RIGHT)
def test_an_interruption_exits_with_130_and_leaves_nothing(folder, capsys, monkeypatch, verb):
    """In processes of their own, with processes that they started: test_processes.py."""
    if verb in ASKS_THE_PERSON:
        model = (folder / "stranger.py").read_text()
        (folder / "stranger.py").write_text(model.replace("    array = lambda", f"    {PRESS}\n    array = lambda"))
    else:
        monkeypatch.setattr(sys, "stdout", CtrlC())
    before, old = files(folder), signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.modules.pop("stranger", None)
    try:
        code = main((*RIGHT[verb], "--out", "answer.json"))
    finally:
        signal.signal(signal.SIGINT, old)
        sys.modules.pop("stranger", None)
    known = {"answer.json"} if verb == "sweep" else set()  # what is known by then, which says what is not
    assert code == 130 and files(folder) - before == known
    assert all(json.loads((folder / file).read_text())["left"] == 2 for file in known)
    assert capsys.readouterr().err.endswith(f"shardviz {verb}: interrupted\n")


def test_an_interruption_while_garbage_is_collected_is_not_lost(folder, monkeypatch, capsys):
    """Python drops what its callbacks raise; JAX has one, in which Ctrl-C often comes while it traces."""
    pressed, waited = [], []

    def callback(*_):
        if not pressed:
            pressed.append("once")
            signal.raise_signal(signal.SIGINT)

    def asked():
        gc.callbacks.append(callback)
        gc.collect()
        for _ in range(600):
            time.sleep(0.1)
        waited.append("to the end")

    monkeypatch.setattr("shardviz.cli.here.statuses", asked)
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = main(("targets",))
    finally:
        signal.signal(signal.SIGINT, old)
        gc.callbacks.remove(callback)
    assert pressed and code == 130 and not waited
    assert capsys.readouterr().err.strip() == "shardviz targets: interrupted"


def test_compare_says_what_differs_and_that_nothing_does(run, reports):
    told = run("compare", *reports)
    assert told.code == 0 and "old (baseline) data=2,model=4 tpu v5p:2x2x2" in told.out and "grew" in told.out
    as_data = run("compare", *reports, "--json", "--exit-code")
    assert as_data.code == 1
    jsonschema.validate(as_data.data, schema_of("compare"))
    (step,) = [a for a in as_data.data["amounts"] if a["name"] == "step"]
    assert step["difference"] == pytest.approx(step["after"] - step["before"])
    assert run("compare", reports[0], reports[0], "--exit-code").code == 0


def test_the_report_on_standard_output_is_the_one_that_the_api_reads(run):
    ran = run(*MLP, "--json")
    mlp = sv.gallery.mlp()
    report = sv.Report.from_json(ran.out)
    assert report.collectives == mlp.program.propagate(mlp.plan, POD[1]).collectives
    assert ran.data["step"]["seconds"] == pytest.approx(sv.cost(report, POD[1]).seconds)
    found = report.findings_on(POD[1])
    assert found and [f["id"] for f in ran.data["findings"]] == [f.id for f in found]
    assert found[0].text in " ".join(run(*MLP, "--width", "1000").out.split()), "findings are printed"


def test_show_says_where_the_api_says_that_slices_lie(run):
    devices = run(*RIGHT["show"], "--json").data["devices"]
    layout = sv.layout((8192, 4096), "P('data', None)", "data=4,model=2")
    assert [d["start"] for d in devices] == layout.starts.tolist()
    assert [d["replica"] for d in devices] == layout.replica_ids.tolist()
    assert "each slice is on 2 devices" in run(*RIGHT["show"]).out


@pytest.mark.parametrize(("after", "kind"), [("P()", "all-gather"), ("P(None, 'data')", "all-to-all")])
def test_a_resharding_by_jit_takes_what_its_collectives_take(run, after, kind):
    moved = run("reshard", ARRAY, "P('data')", after, "--mesh", "data=8", *POD, "--json").data
    alone = sv.collective_seconds(kind, 8192 * 4096 * 2, "data", "data=8", POD[1])
    (by_jit,) = (way for way in moved["ways"] if way["name"] == "jax.jit")
    assert by_jit["seconds"] == pytest.approx(alone.seconds) and kind in by_jit["formula"]
    assert moved["received_bytes"] == 8192 * 4096 * 2 * (1 if after == "P()" else 1 / 8) * 7 / 8


@pytest.mark.parametrize("ending", [".html", ".md", ".txt", ".json"])
def test_a_report_is_written_to_a_file_whole(run, tmp_path, ending):
    file = tmp_path / f"report{ending}"
    ran = run(*MLP, "--out", str(file))
    assert ran.code == 0 and ran.err.endswith(f"wrote {file}\n")
    text = file.read_text()
    assert "Residuals" in text or ending == ".json", "sections that are not printed stand in the file"
    if ending == ".json":
        assert sv.Report.from_json(text).program == "train_step"


def test_a_tree_is_resharded_as_the_api_says(project, run):
    """`up` is exchanged along model; `down` is not: it is (4096, 1024), sharded the other way round already."""
    (project / "stranger.py").write_text(MODEL + 'both = {"up": P("model"), "down": P(None, "model")}\n')
    words = ("reshard", "stranger:params", "stranger:both", "P(None, 'model')", "--mesh", "data=2,model=4", *POD)
    tree = run(*words, "--json").data
    moved = {leaf["name"]: leaf["moved_bytes"] for leaf in tree["leaves"]}
    assert moved == {"['up']": 8 * 1024 * 4096 * 4 / 4 * 3 / 4, "['down']": 0}
    assert [link["kind"] for link in tree["links"]] == ["ICI"] and tree["links"][0]["seconds"] > 0
    assert "def reshard(tree, devices):" in run(*words, "--code").out


def test_a_second_mesh_and_machine_are_those_after(run):
    two = ("reshard", ARRAY, "P('data')", "P(None, 'model')", "--mesh", "data=8", "--mesh", "model=4")
    machines = ("--target", "tpu v5p:2x2x2", "--target", "tpu v5p:2x2x1")
    moved = run(*two, *machines, "--dtype", "float32", "--limit", "90MB", "--json").data
    assert (moved["before"]["names"], moved["after"]["names"]) == (["data"], ["model"])
    assert (moved["before_target"], moved["after_target"], moved["shared_devices"]) == (machines[1], machines[3], 0)
    assert moved["limit"] == 90e6 and moved["leaves"][0]["new_dtype"] == "float32"
    assert run(*two, "--json").data["shared_devices"] == 4
    assert run(*two, "--apart", "--json").data["shared_devices"] == 0


def test_layers_are_stacked_by_a_pattern_as_the_api_does(project, run):
    more = "layers = {'up': [jax.ShapeDtypeStruct((1024, 4096), jnp.float32)] * 3}\n"
    (project / "stranger.py").write_text(MODEL + more)
    words = ("reshard", "stranger:layers", "P('x')", "P(None, 'x')", "--mesh", "x=8")
    (leaf,) = run(*words, "--rename", "['up'][*]=['stack']", "--json").data["leaves"]
    assert (leaf["new_name"], leaf["shape"], len(leaf["layers"])) == ("['stack']", [3, 1024, 4096], 3)
    assert "--rename 'up': expected PATH=PATH" in run(*words, "--rename", "up").err
    assert "the scales' shape is not known" in run(*words, "--rename", "['up'][*]=['q'],['s']").err


def test_the_files_and_the_limits_of_a_checkpoint_are_those_of_the_api(run):
    words = ("checkpoint", ARRAY, "P('data')", "P(None, 'data')", "--mesh", "data=8", "--processes", "4")
    loose, tight = run(*words, "--json").data, run(*words, "--file-bytes", "1MB", "--read-limit", "3MB", "--json").data
    ours = sv.checkpoint(
        jax.ShapeDtypeStruct((8192, 4096), "bfloat16"), ("data",), (None, "data"), mesh={"data": 8}, processes=4,
        file_bytes=1e6, read_limit=3e6,
    )  # fmt: skip
    assert tight == json.loads(ours.to_json()) and loose["leaves"] != tight["leaves"]
    assert max(reader["host_bytes"] for reader in tight["readers"]) == 3e6


def test_a_timeline_is_written_for_perfetto_and_read_by_the_api(run, tmp_path):
    file = tmp_path / "step.trace.json"
    ran = run("timeline", *MLP[1:], "--out", str(file), "--json")
    trace = json.loads(file.read_text())
    assert trace["otherData"]["seconds"] == Timeline.from_json(ran.out).seconds
    assert any(event["ph"] == "X" for event in trace["traceEvents"])


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_wrong_input_exits_with_2_and_says_what_is_wrong(project, run, words, message):
    if words[0] == "why":
        (project / "pyproject.toml").unlink()
    ran = run(*words)
    assert ran.code == 2, ran.err
    assert message in " ".join(ran.err.split()), ran.err


def test_every_verb_helps_with_examples_and_has_a_schema(run):
    listed = run("--help").out
    for name, verb in cli.commands.items():
        ran = run(name, "--help")
        assert ran.code == 0 and ran.out.startswith(f"Usage: shardviz {name}")
        assert f"shardviz {name}" in (verb.epilog or "") and f"\n  {name} " in listed
        assert name in SCHEMAS or name in ("lab", "schema", "completion", "skill", "mcp")
    assert "..." not in listed.partition("Commands:")[2].partition("Examples:")[0], "no sentence is cut short"


def test_the_schemas_are_json_schemas(run):
    for verb in SCHEMAS:
        jsonschema.Draft202012Validator.check_schema(run("schema", verb).data)
    assert run("schema").data.keys() == SCHEMAS.keys()
    assert msgspec_json.decode(run("schema", "report").out)["title"] == "shardviz report --json"


def test_a_shell_is_given_its_completion(run, capsys, monkeypatch):
    for shell in ("bash", "zsh", "fish"):
        assert f"_SHARDVIZ_COMPLETE={shell}_complete" in run("completion", shell).out
    monkeypatch.setenv("_SHARDVIZ_COMPLETE", "zsh_complete")
    monkeypatch.setenv("COMP_WORDS", "shardviz re")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        main([])
    assert sorted(capsys.readouterr().out.split("\n")[1::3]) == ["report", "reshard"]


@pytest.mark.parametrize("verb", ["report", "check", "why", "comment"])
def test_a_shell_completes_the_steps_of_the_project_and_of_the_gallery(project, capsys, monkeypatch, verb):
    for begin, steps in (("t", ["train"]), ("m", ["mlp", "moe"])):
        monkeypatch.setenv("_SHARDVIZ_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", f"shardviz {verb} {begin}")
        monkeypatch.setenv("COMP_CWORD", "2")
        with pytest.raises(SystemExit):
            main([])
        assert capsys.readouterr().out.split() == [f"plain,{step}" for step in steps]
    (project / "pyproject.toml").write_text("[tool.shardviz")
    monkeypatch.setenv("COMP_WORDS", f"shardviz {verb} res")
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out == "plain,resnet\n"

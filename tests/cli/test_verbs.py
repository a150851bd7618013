"""Every verb: right input, wrong input, a narrow terminal, and JSON that its schema describes."""

from __future__ import annotations

import json

import click
import jsonschema
import pytest
from msgspec import json as msgspec_json

import shardviz as sv
from shardviz.cli import main
from shardviz.cli.frame import cli
from shardviz.cli.schemas import SCHEMAS, schema_of
from shardviz.costs.timeline import Timeline
from shardviz.paint.columns import text_width

ARRAY = "bf16[8192,4096]"
POD = ("--target", "tpu v5p:2x2x2")
QUICK = ("--level", "propagated")

RIGHT = {
    "report": ("report", "mlp", *POD, *QUICK),
    "why": ("why", "mlp", "params[0]['w']", "--axis", "data"),
    "why a collective": ("why", "mlp", "all-gather over data", *POD),
    "mends": ("mends", "mlp", *POD, *QUICK, "--findings", "1"),
    "search": ("search", "mlp", *POD, *QUICK, "--seconds", "1", "--keep-mesh", "--pin", "x=P('data')"),
    "sweep": ("sweep", "gallery:mlp", "--over", "batch=256,512", "--mesh", "data=2,model=4", *POD),
    "timeline": ("timeline", "mlp", *POD, *QUICK),
    "show": ("show", ARRAY, "P('data', None)", "--mesh", "data=4,model=2"),
    "reshard": ("reshard", ARRAY, "P('data', None)", "P(None, 'data')", "--mesh", "data=8", *POD),
    "targets": ("targets",),
    "skill": ("skill",),
}  # fmt: skip


@pytest.fixture
def reports(run, tmp_path):
    """Two reports of one program as files."""
    files = tmp_path / "old.json", tmp_path / "new.json"
    for file, mesh in zip(files, ("data=2,model=4", "data=4,model=2"), strict=True):
        assert run("report", "mlp", "--mesh", mesh, *POD, *QUICK, "--out", str(file)).code == 0
    return tuple(map(str, files))


@pytest.mark.parametrize("words", RIGHT.values(), ids=RIGHT)
def test_a_verb_prints_text_for_people_and_writes_json_that_its_schema_describes(run, tmp_path, words):
    told = run(*words, "--quiet", "--out", str(tmp_path / "answer.json"))
    assert (told.code, told.err) == (0, "")
    assert told.out.strip() and "\x1b" not in told.out, "no escapes where no terminal is"
    data = json.loads((tmp_path / "answer.json").read_text())
    jsonschema.validate(data, schema_of(words[0]))
    version = next(iter(data))
    assert version.startswith("shardviz_") and data[version] == 1


@pytest.mark.parametrize("words", [RIGHT[name] for name in ("report", "why", "timeline", "reshard", "sweep")])
def test_a_narrow_terminal_gets_narrow_lines(run, words):
    lines = run(*words, "--width", "44").out.splitlines()
    wide = [line for line in lines if text_width(line) > 44]
    assert len(wide) <= 0.02 * len(lines), wide


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
    ran = run(*RIGHT["report"], "--json")
    mlp = sv.gallery.mlp()
    report = sv.Report.from_json(ran.out)
    assert report.collectives == mlp.program.propagate(mlp.plan, POD[1]).collectives
    assert ran.data["step"]["seconds"] == pytest.approx(sv.cost(report, POD[1]).seconds)
    assert [f["id"] for f in ran.data["findings"]] == [f.id for f in report.findings_on(POD[1])]


def test_show_says_where_the_api_says_that_slices_lie(run):
    devices = run(*RIGHT["show"], "--json").data["devices"]
    layout = sv.layout((8192, 4096), "P('data', None)", "data=4,model=2")
    assert [d["start"] for d in devices] == layout.starts.tolist()
    assert [d["replica"] for d in devices] == layout.replica_ids.tolist()
    assert "each slice is on 2 devices" in run(*RIGHT["show"]).out


def test_a_resharding_takes_what_its_collectives_take(run):
    whole = run("reshard", ARRAY, "P('data')", "P()", "--mesh", "data=8", *POD, "--json").data
    gather = sv.collective_seconds("all-gather", 8192 * 4096 * 2, "data", "data=8", POD[1])
    assert [s["kind"] for s in whole["steps"]] == ["all-gather"]
    assert whole["seconds"] == pytest.approx(gather.seconds)
    assert whole["received_bytes"] == 8192 * 4096 * 2 * 7 / 8
    around = run(*RIGHT["reshard"], "--json").data
    exchange = sv.collective_seconds("all-to-all", 8192 * 4096 * 2, "data", "data=8", POD[1])
    assert around["seconds"] == pytest.approx(exchange.seconds)


@pytest.mark.parametrize("ending", [".html", ".md", ".txt", ".json"])
def test_a_report_is_written_to_a_file_whole(run, tmp_path, ending):
    file = tmp_path / f"report{ending}"
    ran = run(*RIGHT["report"], "--out", str(file))
    assert ran.code == 0 and ran.err.endswith(f"wrote {file}\n")
    text = file.read_text()
    assert "Residuals" in text or ending == ".json", "sections that are not printed stand in the file"
    if ending == ".json":
        assert sv.Report.from_json(text).program == "train_step"


def test_a_timeline_is_written_for_perfetto_and_read_by_the_api(run, tmp_path):
    file = tmp_path / "step.trace.json"
    ran = run(*RIGHT["timeline"], "--out", str(file), "--json")
    trace = json.loads(file.read_text())
    assert trace["otherData"]["seconds"] == Timeline.from_json(ran.out).seconds
    assert any(event["ph"] == "X" for event in trace["traceEvents"])


def test_colours_stand_where_they_are_wanted_and_change_no_word(run, monkeypatch):
    plain = run(*RIGHT["show"]).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = run(*RIGHT["show"]).out
    assert "\x1b[34mdata\x1b[0m" in coloured and "\x1b[31mmodel\x1b[0m" in coloured
    assert click.unstyle(coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(*RIGHT["show"]).out == plain


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("why", "mlp"), "STEP: which one?"),
        (("why", "mlp", "a", "b"), "expected [STEP] VALUE, not 3 words"),
        (("why", "mlp", "nonesuch"), "the propagated report has no value of this name"),
        (("why", "mlp", "all-to-all"), "there is no such collective at level propagated; there are all-gather"),
        (("mends", "mlp", "--findings", "0"), "0 is not in the range x>=1"),
        (("search", "mlp"), "--target: a search is for a machine with a speed"),
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
        (("reshard", ARRAY, "P()", "P('x')", "--mesh", "x=2", *POD), "a mesh of 2 is 2 devices, but tpu v5p:2x2x2"),
        (("compare", "nonesuch.json", "new.json"), "OLD: 'nonesuch.json' cannot be read: No such file"),
        (("compare", "pyproject.toml", "new.json"), "OLD: this is no shardviz report: not JSON"),
        (("check",), "train: there is nothing to check"),
        (("check", "mlp", "--forbid", "gather"), "--forbid 'gather': expected a kind of collective"),
        (("check", "mlp", "--max-step-time", "5s"), "--max-step-time: a step has a time on a machine; give --target"),
        (("check", "mlp", *POD, "--max-step-time", "5"), "--max-step-time: step_time='<= 5': expected a bound such as"),
        (("check", "mlp", *POD, "--max-step-time", "+5%"), "--max-step-time +5%: more than what? give --base"),
        (("check", "mlp", "--max-memory", "90%"), "--max-memory 90%: of which machine? give --target"),
        (("schema", "nonesuch"), "VERB 'nonesuch': it prints no JSON; there are report, compare"),
        (("completion", "csh"), "'csh' is not one of 'bash', 'zsh', 'fish'"),
        (("lab", "--port", "x"), "'x' is not a valid integer"),
        (("report", "mlp", *QUICK, "--out", "report.docx"), "'.docx' is no kind of file that is written here"),
        (("report", "mlp", *QUICK, "--out", "no/such/folder.md"), "there is no folder 'no/such'"),
    ],
)  # fmt: skip
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
        assert name in SCHEMAS or name in ("lab", "schema", "completion", "mcp")
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
    assert capsys.readouterr().out.split("\n")[1::3] == ["report", "reshard"]

"""How a step is named, on the command line and in `pyproject.toml`; wrong input is told with the option and a fix."""

from __future__ import annotations

import os
import sys

import pytest

from shardviz.cli.naming import array_of, collectives_of, gallery_names, resolve
from shardviz.errors import ShardvizError

GIVEN = ("--args", "stranger:arguments", "--mesh", "data=2,model=4")


def specs(ran) -> dict[str, str]:
    """Argument → the dimensions of its spec."""
    assert ran.code == 0, ran.err
    return {value["name"]: value["spec"]["dims"] for value in ran.data["arguments"]}


def test_a_step_of_the_configuration_is_the_one_that_is_asked_for(project, run):
    ran = run("report", "--json", "--level", "propagated")
    assert specs(ran) == {"params['down']": [["model"], []], "params['up']": [["data"], ["model"]], "x": [["data"], []]}
    assert ran.data["step"]["target"] == "tpu v5p:2x2x2"
    assert not any(f["id"].startswith("not-donated") for f in ran.data["findings"]), "donate = [0] is read"


def test_the_command_line_goes_before_the_configuration(project, run):
    ran = run("report", "train", "--json", "--level", "propagated", "--mesh", "data=4,model=2", "--target", "v5e")
    assert ran.data["plan"]["mesh"]["sizes"] == [4, 2] and ran.data["step"]["target"].startswith("tpu v5e")


def test_a_function_its_file_or_a_function_with_its_arguments_is_a_step(project, run):
    level = ("--level", "propagated", "--json")
    by_module = specs(run("report", "stranger:train_step", *GIVEN, "--in-specs", "stranger:specs", *level))
    by_file = specs(run("report", "stranger.py:train_step", *GIVEN, "--in-specs", "stranger:specs", *level))
    with (project / "stranger.py").open("a") as model:
        model.write("made = make(512)\n")
    made = specs(run("report", "stranger:made", "--mesh", "data=2,model=4", *level))
    assert by_module == by_file == made and by_module["x"] == [["data"], []]


def test_without_a_mesh_the_target_gives_one(project, run):
    ran = run("report", "stranger:train_step", *GIVEN[:2], "--in-specs", "P(None, 'model'); P('data')", "--target",
              "tpu v5e:2x4", "--level", "propagated", "--json")  # fmt: skip
    assert ran.data["plan"]["mesh"]["sizes"] == [2, 4] and "on the mesh data=2,model=4" in ran.err
    assert specs(ran)["x"] == [["data"], []]


def test_specs_can_be_written_down(project, run):
    level = ("--level", "propagated", "--json")
    one_each = run("report", "stranger:train_step", *GIVEN, "--in-specs", "P(None, 'model'); P('data')", *level)
    assert specs(one_each) == {"params['down']": [[], ["model"]], "params['up']": [[], ["model"]], "x": [["data"], []]}
    rules = run("report", "stranger:train_step", *GIVEN, "--rule", "*up=P(None, 'model')", *level)
    assert specs(rules)["params['up']"] == [[], ["model"]] and specs(rules)["x"] == [[], []]


@pytest.mark.parametrize("name", [n for n in gallery_names() if "llama" not in n and n != "decoder"])
def test_every_name_of_the_gallery_is_a_step(name):
    assert resolve("STEP", name).plan.mesh.size > 1


def test_a_step_of_the_gallery_takes_a_mesh(run):
    ran = run("report", "gallery:mlp", "--mesh", "data=8", "--level", "propagated", "--json", "-q")
    assert ran.code == 0 and ran.err == ""
    assert ran.data["plan"]["mesh"]["sizes"] == [8]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("report",), "STEP: which one? pyproject.toml names none"),
        (("report", "nonesuch-7b"), "STEP 'nonesuch-7b': there is no such step in pyproject.toml or in the gallery"),
        (("report", "modl:train"), "STEP 'modl:train': there is no module 'modl' here or installed"),
        (("report", "stranger:trian"), "stranger has no 'trian'; it has P, arguments, broken, loss, make"),
        (("report", "nofile.py:f"), "STEP 'nofile.py:f': there is no file nofile.py"),
        (("report", "stranger:make(512)"), "stranger has no 'make(512)'; it has P, arguments, broken, loss, make"),
        (("report", "stranger:train_step"), "No arguments were given; give them with --args module:function"),
        (("report", "stranger:train_step", *GIVEN[:2]), "--mesh: stranger:train_step has no mesh"),
        (("report", "stranger:train_step", *GIVEN[:3], "data=2,x"), "--mesh: mesh 'data=2,x': expected axes as"),
        (("report", "stranger:train_step", "--args", "stranger:broken"), "RuntimeError: no data here at "),
        (("report", "stranger:train_step", *GIVEN, "--in-specs", "P('dat'); P()"), "--in-specs: P('dat'): the mesh"),
        (("report", "stranger:train_step", *GIVEN, "--rule", "*up"), "--rule '*up': expected PATTERN=SPEC"),
        (("report", "stranger:train_step", *GIVEN, "--rule", "*pu=P('data')"), "--rule '*pu' matches no argument of"),
        (("report", "mlp", "--args", "stranger:arguments"), "mlp has its own; leave them out"),
        (("report", "mlp", "--target", "tpu v5q:2x2"), "there is no chip 'v5q'"),
        (("report", "mlp", "--level", "compild"), "'compild' is not one of 'propagated', 'partitioned', 'compiled'"),
        (("report", "mlp", "--nope"), "No such option '--nope'"),
        (("report", "mlp", "--options", "a b c"), "--options: "),
        (("nope",), "No such command 'nope'"),
    ],
)  # fmt: skip
def test_wrong_input_exits_with_2_and_says_what_to_do(project, run, words, message):
    (project / "pyproject.toml").unlink()
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert message in " ".join(ran.err.split()), ran.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.shardviz", "cannot be read: "),
        ("[tool.shardviz.steps.train]\nfuntion = 'a:b'", "unknown field `funtion` - at `$.steps[...]`"),
        ("[tool.shardviz.steps.train]\nlevel = 'compild'", "Invalid enum value 'compild' - at `$.steps[...].level`"),
        ("[tool.shardviz.steps.a]\n[tool.shardviz.steps.b]", "STEP: which one? there are a, b"),
        ("[tool.shardviz.steps.train]\nmax_mem = '1 GB'", "unknown field `max_mem`"),
        ("tool = 3", "[tool.shardviz] must be a table, not 3"),
        ("[[tool.shardviz]]", "[tool.shardviz] must be a table, not [{}]"),
        (f"x = {'[' * 2000}{']' * 2000}", "cannot be read: maximum recursion depth exceeded"),
        (f"x = {'9' * 5000}", "cannot be read: Exceeds the limit"),
        ("[tool.shardviz.steps.train]\ndonate = '0,opt'", "steps.train: donate = '0,opt'; write donate = [0, \"opt\"]"),
        ("[tool.shardviz.steps.train]\nstatic = 0", "steps.train: static = 0; write static = [0]"),
        ("[tool.shardviz.steps.train]\nforbid = 'any'", "forbid = 'any'; write forbid = [\"any\"]"),
    ],
)
def test_a_wrong_configuration_is_told(project, run, text, message):
    (project / "pyproject.toml").write_text(text)
    ran = run("report")
    assert ran.code == 2 and message in ran.err


def test_a_fault_in_the_persons_module_is_told_with_its_line(project, run):
    (project / "other.py").write_text("import math\nmath.nonesuch\n")
    ran = run("report", "other:f")
    assert ran.code == 2 and "AttributeError: module 'math' has no attribute 'nonesuch'" in ran.err
    assert "other.py:2" in ran.err
    (project / "other.py").write_text("import nonesuch_package\n")
    assert "importing other needs 'nonesuch_package', which is not installed" in run("report", "other:f").err


EXITS = {
    "a module": ("import sys; sys.exit(0)", "exits:step"),
    "arguments": ("def step(x): return x\ndef exits(): exit(0)", "exits:exits"),
    "what is traced": ("import sys\ndef step(*x): sys.exit(0)", "stranger:arguments"),
    "an attribute": ("class A:\n def __getattr__(self, name): exit(0)\n def __call__(self): return 0\nstep = A()", ""),
}  # fmt: skip


@pytest.mark.parametrize(("code", "args"), EXITS.values(), ids=EXITS)
def test_a_persons_exit_is_no_pass(project, run, code, args):
    (project / "exits.py").write_text(code)
    sys.modules.pop("exits", None)
    words = ("--mesh", "x=2", "--level", "propagated", "--forbid", "all-to-all", *(["--args", args] if args else []))
    ran = run("check", "exits:step", *words)
    assert ran.code == 2 and "exit" in ran.err and "exits.py:" in ran.err and "fault of shardviz" not in ran.err


def test_what_a_persons_object_raises_is_told_with_its_line(project, run):
    odd = "class Odd:\n    def __getattr__(self, name):\n        raise RuntimeError(name)\n"
    (project / "other.py").write_text(odd + "    def __call__(self, x):\n        return x\nstep = Odd()\n")
    ran = run("report", "other:step", "--args", "stranger:arguments", "--mesh", "x=2")
    assert ran.code == 2 and "RuntimeError: " in ran.err and "other.py:3" in ran.err


DIGITS, DASHES = "9" * 5000, "-" * 3000 + "1"


@pytest.mark.parametrize(
    "words",
    [
        ("report", "train", "--donate", DIGITS),
        ("report", "train", "--mesh", f"x={DIGITS}"),
        ("show", f"f32[{DIGITS}]", "P()", "--mesh", "x=2"),
        ("search", "train", "--target", "v5e", "--level", "propagated", "--pin", f"model={DIGITS}"),
        ("sweep", "stranger:make", "--over", f"batch={DASHES}", "--mesh", "data=2,model=4"),
        ("sweep", "stranger:make", "--over", f"batch={DIGITS}", "--mesh", "data=2,model=4"),
        ("check", "train", "--max-step-time", "1e999s", "--level", "propagated"),
        ("check", "train", "--golden", os.devnull, "--level", "propagated"),
    ],
    ids=lambda words: f"{words[0]} {words[-1][:12]}",
)
def test_input_beyond_all_bounds_exits_with_2(project, run, words):
    ran = run(*words)
    assert ran.code == 2 and ran.out == "" and "Traceback" not in ran.err and len(ran.err) < 8000


@pytest.mark.parametrize("text", ["", "[8]", "bf16", "bf16[8", "bf16[8,x]", "bf17[8]"])
def test_what_is_no_array_is_refused(text):
    with pytest.raises(ShardvizError, match=r"such as '?b"):
        array_of(text)


def test_collectives_are_said_in_words():
    assert array_of("f32[]") == ("f32", ())
    assert collectives_of("any inside loop", argument="VALUE") == {"inside": "loop"}
    assert collectives_of("all-gather of bfloat16 in backward", argument="VALUE") == {
        "kind": "all-gather", "dtype": "bfloat16", "phase": "backward",
    }  # fmt: skip
    with pytest.raises(ShardvizError, match="'gather inside loop': expected a kind of collective"):
        collectives_of("gather inside loop", argument="VALUE")

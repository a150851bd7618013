"""A server of tools is asked for what it was not started for: other code, other files, options that name programs."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from shardviz.cli.mcp import answer, bounds_for
from shardviz.cli.verbs import run
from shardviz.errors import ShardvizError

ASKED = ("report", "train", "--level", "propagated", "--json", "-q")
ATTACKS = {
    "a command by sweep": ("sweep", "os:system", "--over", "command=touch pwned"),
    "a command of a name": ("report", "os:system"),
    "a name as arguments": (*ASKED, "--args", "evil:touch"),
    "a name as specs": (*ASKED, "--in-specs", "evil:touch"),
    "a name as result specs": (*ASKED, "--out-specs", "evil:touch"),
    "another name of the step's module": (*ASKED, "--args", "stranger:broken"),
    "a file in the project": ("report", "evil.py:touch"),
    "a file outside": ("report", "../evil.py:touch"),
    "a step's own function in a sweep": ("sweep", "stranger:train_step", "--over", "params=1"),
    "a tree of arrays": ("reshard", "evil:touch", "P()", "P()", "--mesh", "x=2"),
    "a script": ("report", "--run", "python evil.py", "--level", "propagated"),
    "a script in place of a step": (*ASKED, "--run", "evil.py"),
    "a device": ("check", *ASKED[1:], "--golden", "/dev/zero"),
    "a file above": ("check", *ASKED[1:], "--golden", "../secret.json"),
    "a link out of the project": ("compare", "link.json", "link.json"),
    "a pipe": ("compare", "pipe.json", "pipe.json"),
    "an option that names a program's folder": (*ASKED, "--options", "xla_gpu_cuda_data_dir=."),
    "such an option in a sweep": ("sweep", "gallery:mlp", "--over", "options=xla_gpu_cuda_data_dir=."),
}  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="links and pipes as POSIX has them")
@pytest.mark.parametrize("words", ATTACKS.values(), ids=ATTACKS)
def test_a_call_runs_no_other_code_and_reads_no_other_file(project, capsys, words):
    evil = "from pathlib import Path\nPath('pwned').touch()\ndef touch(*_): return Path('pwned').touch()\n"
    for folder in (project, project.parent):
        (folder / "evil.py").write_text(evil)
    (project.parent / "secret.json").write_text("{}")
    (project / "link.json").symlink_to(project.parent / "secret.json")
    os.mkfifo(project / "pipe.json")
    sys.modules.pop("evil", None)
    assert run(words, bounds=bounds_for(())) == 2
    told = capsys.readouterr().err
    assert "this server" in told and "fault of shardviz" not in told, told
    assert not (project / "pwned").exists() and "evil" not in sys.modules


def test_a_server_runs_what_it_was_started_for(project, capsys):
    sweep = ("sweep", "stranger:make", "--over", "batch=256", "--mesh", "data=2,model=4", "--json")
    assert run(sweep, bounds=bounds_for(())) == 2
    assert run(sweep, bounds=bounds_for(("stranger:make",))) == 0
    assert run(ASKED, bounds=bounds_for(())) == run(ASKED, bounds=bounds_for(("train",))) == 0
    assert run(ASKED, bounds=bounds_for(("stranger:make",))) == 2, "train is not among its steps"
    with pytest.raises(ShardvizError, match="--steps 'nonesuch': there is no such step"):
        bounds_for(("nonesuch",))


def test_an_attack_reaches_no_code_by_the_server_either(project):
    text, failed = asyncio.run(answer("sweep", {"function": "os:system", "over": ["command=touch pwned"]}))
    assert failed and "MAKE 'os:system': this server does not run it" in text and not (project / "pwned").exists()

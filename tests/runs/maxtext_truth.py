"""A small step of MaxText: compiled for four TPUs by its own `train_compile`, and by shardviz from a dry run of that.

python maxtext_truth.py theirs FOLDER   MaxText's own compile; its HLO and its memory go to the folder
python maxtext_truth.py ours FOLDER     the report of `shardviz report --run "python -m maxtext..." --level compiled`
"""

import importlib.util
import json
import os
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import strangers  # noqa: E402

TARGET = "tpu v5p:2x2x1"
SMALL = """
compile_topology=v5p-8 base_emb_dim=512 base_num_query_heads=8 base_num_kv_heads=8 head_dim=64 base_mlp_dim=2048
base_num_decoder_layers=3 vocab_size=4096 max_target_length=1024
"""


def words(folder):
    """The command of `docs/strangers.toml`, for a model and a machine that are small."""
    there = Path(importlib.util.find_spec("maxtext").origin).parent
    of = strangers.STRANGERS["maxtext train_compile"].words.format(here=there, tmp=folder)
    given = [
        word for word in shlex.split(of) if not word.startswith(("model_name=", "compile_topology=", "max_target"))
    ]
    return [*given, *SMALL.split()]


def theirs(folder):
    import jax
    from maxtext.trainers.pre_train import train_compile

    states = jax.stages.Compiled.memory_analysis

    def memory_analysis(self):
        stats = states(self)
        sizes = {n: getattr(stats, n) for n in dir(stats) if n.endswith("_in_bytes") or n.startswith("total_")}
        (folder / "memory.json").write_text(json.dumps(sizes))
        return stats

    jax.stages.Compiled.memory_analysis = memory_analysis
    options = f"--xla_dump_to={folder} --xla_dump_hlo_module_re=train_step"
    train_compile.main([*words(folder)[2:], f"compile_xla_flags={options}"])


def ours(folder):
    from shardviz.cli import main

    command = shlex.join(words(folder))
    asked = ["--target", TARGET, "--level", "compiled", "--json", "--full", "--out", str(folder / "report.json")]
    raise SystemExit(main(["report", "--run", command, "--program", "train_step", *asked]))


if __name__ == "__main__":
    os.environ |= strangers.ENVIRONMENT | {"JAX_PLATFORMS": "cpu"}
    sys.meta_path.insert(0, strangers._Stubs(strangers.STRANGERS["maxtext train_compile"].stubs))
    {"theirs": theirs, "ours": ours}[sys.argv[1]](Path(sys.argv[2]))

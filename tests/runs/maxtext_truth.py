"""A step of MaxText: compiled for TPUs by its own `train_compile`, and by shardviz from a dry run of that.

python maxtext_truth.py theirs FOLDER   MaxText's own compile of a small step for four TPUs; its HLO and its memory go
                                        to the folder
python maxtext_truth.py ours FOLDER     the report of `shardviz report --run "python -m maxtext..." --level compiled`
python maxtext_truth.py llama FOLDER    the same report of Llama 3.1 8B on 64 chips
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


STRANGER = strangers.STRANGERS["maxtext train_compile"]


def words(folder):
    """The command of `docs/strangers.toml`: Llama 3.1 8B on 64 chips."""
    there = Path(importlib.util.find_spec("maxtext").origin).parent
    return shlex.split(STRANGER.words.format(here=there, tmp=folder))


def small_words(folder):
    """The same command, for a model and a machine that are small."""
    given = [word for word in words(folder) if not word.startswith(("model_name=", "compile_topology=", "max_target"))]
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
    train_compile.main([*small_words(folder)[2:], f"compile_xla_flags={options}"])


def ours(folder, command=small_words, target=TARGET):
    from shardviz.cli import main

    asked = ["--target", target, "--level", "compiled", "--json", "--full", "--out", str(folder / "report.json")]
    raise SystemExit(main(["report", "--run", shlex.join(command(folder)), "--program", "train_step", *asked]))


def llama(folder):
    ours(folder, words, STRANGER.target)


if __name__ == "__main__":
    os.environ |= strangers.ENVIRONMENT | {"JAX_PLATFORMS": "cpu"}
    sys.meta_path.insert(0, strangers._Stubs(STRANGER.stubs))
    {"theirs": theirs, "ours": ours, "llama": llama}[sys.argv[1]](Path(sys.argv[2]))

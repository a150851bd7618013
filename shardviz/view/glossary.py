"""The field's words, each explained in a sentence: as tooltips, and as a table in the docs.

A column head or `term` that is listed here has a dotted underline and the sentence as its tip.

>>> GLOSSARY["replicated"]
'Every device along the axis holds the same copy.'
>>> print(markdown().splitlines()[2])
| MFU | Model FLOPs utilisation: the model's FLOPs in a step over the machine's peak in that time, in %. |
"""

from __future__ import annotations

GLOSSARY = {
    "MFU": "Model FLOPs utilisation: the model's FLOPs in a step over the machine's peak in that time, in %.",
    "HBM": "High-bandwidth memory: the main memory of an accelerator.",
    "HBM-bound": "Reading and writing HBM takes longer than the compute.",
    "ICI": "Inter-chip interconnect: the links between the TPU chips of one slice.",
    "DCN": "Data-centre network: the links between TPU slices.",
    "NVLink": "The links between the GPUs of one NVLink domain.",
    "mesh": "The devices as a grid; each dimension of the grid is a mesh axis with a name and a size.",
    "axes": "The mesh axes along which the devices of a group differ.",
    "over": "The mesh axes along which the devices of a group differ.",
    "spec": "A PartitionSpec: for each dimension of an array, the mesh axes along which it is sharded.",
    "shard": "The part of an array that one device holds.",
    "sharded along": "Devices along the mesh axis hold different parts of the array.",
    "replicated": "Every device along the axis holds the same copy.",
    "partial sums": "Each device along the axis holds one summand; the array is their sum.",
    "manual": "Inside a shard_map: each device along the axis holds an array of its own.",
    "resharding": "The change of an array from one sharding to another; it costs collectives.",
    "padding": "Elements that fill up the last shards where a dimension is not divisible.",
    "collective": "An operation in which the devices of a group exchange data.",
    "all-gather": "Each device of a group gets the shards of all others.",
    "all-reduce": "The partial sums of a group are added, and each device gets the full sum.",
    "reduce-scatter": "The partial sums of a group are added, and each device gets its shard of the sum.",
    "all-to-all": "Each device of a group sends a part of its shard to each other one.",
    "ragged-all-to-all": "An all-to-all whose parts have sizes that are known only when it runs.",
    "collective-permute": "Each device sends its shard to one other device.",
    "collective-broadcast": "One device of a group sends its shard to the others.",
    "operand bytes": "Bytes that go into a collective on one device, in all its runs of a step.",
    "communication": "What collectives take in a step on one device: seconds on the links, without a machine bytes.",
    "runs": "How often it runs in a step; loops are counted.",
    "step": "Seconds of one call of the program, predicted from its schedule.",
    "predicted": "From Shardy's propagation and the cost model, before the target's compiler confirms it.",
    "exposed": "Communication that no other work hides: the step waits for it.",
    "hidden": "The link is busy while other work runs, so the step does not wait for it.",
    "memory per device": "Bytes that one device must hold at once; the second number is what it has for them.",
    "peak of live memory": "The most bytes that are in use at one moment of the step.",
    "donated": "The memory of an argument is reused for a result.",
    "residual": "A value that the forward pass keeps for the backward pass.",
    "recomputed": "Dropped by jax.checkpoint and computed once more in the backward pass.",
    "level": "How far the program was taken: propagated (Shardy), partitioned (XLA) or compiled (the target).",
    "propagated": "Shardy's propagation has sharded every value; nothing was compiled.",
    "partitioned": "XLA's SPMD partitioner has made the program of one device, with its collectives.",
    "compiled": "The target's compiler has optimised the program and planned its memory.",
    "final HLO": "The program after all passes of the target's compiler.",
    "chip-seconds": "The step's seconds times the number of chips.",
    "finding": "Something to look at, with its place, its numbers and what to try.",
    "fix": "A change of the plan that was tried, with what it saves.",
    "preset": "A well-known plan, made for this program: data parallel, FSDP, tensor parallel, ...",
}
"""Word → meaning."""


def markdown() -> str:
    """Return the table for the docs."""
    rows = (f"| {word} | {meaning} |" for word, meaning in GLOSSARY.items())
    return "\n".join(("| word | meaning |", "| --- | --- |", *rows))

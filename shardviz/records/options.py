"""Compiler options: what XLA is told besides the program, as `compiler_options` of `jax.jit` has them.

>>> options_of("data-parallel-overlap --xla_tpu_scoped_vmem_limit_kib=65536")["xla_tpu_scoped_vmem_limit_kib"]
65536
>>> options_text({"xla_a": True, "xla_b": -1, "xla_c": "one two"})
"xla_a=true xla_b=-1 'xla_c=one two'"
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from shardviz.errors import ShardvizError, excerpt

_NAME = r"^[A-Za-z_][A-Za-z0-9_]*\Z"
_LONGEST_NAME, _LONGEST_TEXT, _LARGEST = 200, 10_000, 2**63

OptionName = Annotated[str, Meta(pattern=_NAME, max_length=_LONGEST_NAME)]
Option = bool | int | float | Annotated[str, Meta(max_length=_LONGEST_TEXT)]

_WORDS: Mapping[str, Option] = {"true": True, "false": False}


def options_of(options: Any) -> dict[str, Option]:
    """Compiler options by name; of two values of one name the last counts.

    Args:
        options: a mapping of names to bools, ints, floats or texts; or text: names of `option_sets`, and flags as
            XLA_FLAGS and LIBTPU_INIT_ARGS have them, `--xla_a=true xla_b=24`; or several of these.

    Raises:
        ShardvizError: for a name that is no identifier, a value of another type, an unknown set, or an option that
            has the compiler write its programs elsewhere.
    """
    if isinstance(options, str):
        return {name: value for part in _parts(options) for name, value in _read(part).items()}
    if isinstance(options, Mapping):
        return {_checked_name(name): _checked(name, value) for name, value in options.items()}
    if isinstance(options, Iterable):
        return {name: value for each in options for name, value in options_of(each).items()}
    raise ShardvizError(f"options={excerpt(repr(options))}: expected a mapping, such as {{'xla_a': True}}, or text")


def options_text(options: Mapping[str, Option]) -> str:
    """Options as flags, `xla_a=true xla_b=24`, which `options_of` reads."""
    words = {value: word for word, value in _WORDS.items()}
    text = lambda value: words[value] if isinstance(value, bool) else str(value)  # noqa: E731
    return shlex.join(f"{name}={text(value)}" for name, value in options.items())


def nearest(name: str) -> str:
    """The option of `option_sets` whose name is most like one that is not known; empty where none is like it."""
    names = {option for each in option_sets.values() for option in each.options} - {name}
    return next(iter(difflib.get_close_matches(name, sorted(names), 1, 0.85)), "")


def _parts(text: str) -> list[str]:
    if len(text) > _LONGEST_TEXT:
        raise ShardvizError(f"options: at most {_LONGEST_TEXT:,} characters of text, not {len(text):,}")
    try:
        return shlex.split(text)
    except ValueError as error:  # a quote that is not closed
        raise ShardvizError(f"options={excerpt(repr(text))}: {error}") from None


def _read(part: str) -> dict[str, Option]:
    """The options of one word: a flag, or the name of a set."""
    name, equals, value = part.removeprefix("--").partition("=")
    if equals:
        return {_checked_name(name): _checked(name, _value(value))}
    if name not in option_sets:
        raise ShardvizError(
            f"options: {excerpt(repr(part))} is neither a flag such as xla_a=true nor a set of options; "
            f"sv.gallery.option_sets has {', '.join(option_sets)}"
        )
    return dict(option_sets[name].options)


def _value(text: str) -> Option:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind, pattern in ((int, r"[+-]?\d{1,20}"), (float, r"[+-]?\d+\.\d*(e[+-]?\d+)?")):
        if re.fullmatch(pattern, text, re.ASCII):
            return kind(text)
    return text


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not re.match(_NAME, name) or len(name) > _LONGEST_NAME:
        raise ShardvizError(
            f"options[{excerpt(repr(name))}]: the name of a compiler option has letters, digits and _ alone, such as "
            "'xla_tpu_scoped_vmem_limit_kib'"
        )
    if name.startswith("xla_dump_"):
        raise ShardvizError(
            f"options[{name!r}]: shardviz itself has the compiler write its programs down; report.stages has them"
        )
    return name


def _checked(name: str, value: Any) -> Option:
    """The value, if XLA can be given it."""
    whole, text = isinstance(value, int), isinstance(value, str)
    if type(value) not in (bool, int, float, str) or (
        len(value) > _LONGEST_TEXT if text else abs(value) >= _LARGEST if whole else not math.isfinite(value)
    ):
        raise ShardvizError(
            f"options[{name!r}]={excerpt(repr(value))}: expected True or False, a number of 64 bits, or a text"
        )
    return value


@dataclass(frozen=True)
class OptionSet:
    """Options that people use together: what they do, name → value, and where they are from."""

    text: str
    options: Mapping[str, Option]
    source: str


_MAXTEXT = "https://github.com/AI-Hypercomputer/maxtext/blob/48445cf00e73/benchmarks/xla_flags_library.py ({})"
_JAX = "https://docs.jax.dev/en/latest/gpu_performance_tips.html"
_FUSION = "xla_tpu_enable_async_collective_fusion"
_OFFLOAD = "xla_tpu_enable_sparse_core_collective_offload"
_FUSED = {
    _FUSION: True,
    f"{_FUSION}_multiple_steps": True,
    "xla_tpu_overlap_compute_collective_tc": True,
}
_ON_SPARSE_CORES = {
    "xla_tpu_use_tc_device_shape_on_sc": True,
    "xla_sc_enable_instruction_fusion": False,
    "xla_sc_disable_megacore_partitioning": True,
}
_LAYOUT = {
    "xla_tpu_use_minor_sharding_for_major_trivial_input": True,
    "xla_tpu_relayout_group_size_threshold_for_reduce_scatter": 1,
}


def _offloaded(*kinds: str) -> Mapping[str, Option]:
    """Collectives of these kinds on the sparse cores, and so in no fusion."""
    by_kind = {
        f"{_FUSION}_fuse_{{}}": False,
        f"{_OFFLOAD}_{{}}": True,
        "xla_tpu_enable_{}_offload_tracing": True,
    }
    return {name.format(kind): value for name, value in by_kind.items() for kind in kinds} | _ON_SPARSE_CORES


option_sets: Mapping[str, OptionSet] = MappingProxyType(
    {
        "data-parallel-overlap": OptionSet(
            "All-reduces of data parallelism between slices overlap with the next iterations' work.",
            {
                "xla_tpu_enable_data_parallel_all_reduce_opt": True,
                "xla_tpu_data_parallel_opt_different_sized_ops": True,
            },
            _MAXTEXT.format("DATA_PARALLEL_OVERLAP"),
        ),
        "collective-matmul-off": OptionSet(
            "No matrix product is split into windows that overlap with the transfer of its operands.",
            {"xla_jf_spmd_threshold_for_windowed_einsum_mib": 1_000_000},
            _MAXTEXT.format("DISABLE_COLLECTIVE_MATMUL"),
        ),
        "host-offload": OptionSet(
            "The scheduler overlaps copies to and from the host with work, for programs that keep arrays there.",
            {
                "xla_tpu_enable_all_experimental_scheduler_features": True,
                "xla_tpu_enable_scheduler_memory_pressure_tracking": True,
                "xla_tpu_host_transfer_overlap_limit": 24,
                "xla_tpu_aggressive_opt_barrier_removal": "ENABLED",
                "xla_lhs_prioritize_async_depth_over_stall": "ENABLED",
                "xla_tpu_enable_ag_backward_pipelining": True,
                "xla_should_allow_loop_variant_parameter_in_chain": "ENABLED",
                "xla_should_add_loop_invariant_op_in_chain": "ENABLED",
                "xla_max_concurrent_host_send_recv": 100,
                "xla_tpu_scheduler_percent_shared_memory_limit": 100,
                "xla_latency_hiding_scheduler_rerun": 2,
            },
            _MAXTEXT.format("HOST_OFFLOAD_FLAGS"),
        ),
        "fused-all-gather": OptionSet(
            "All-gathers run inside fusions with the work that hides them.",
            {**_FUSED, f"{_FUSION}_fuse_all_gather": True, "xla_enable_async_all_gather": True},
            _MAXTEXT.format("CF_FOR_ALL_GATHER"),
        ),
        "fused-all-reduce": OptionSet(
            "All-reduces run inside fusions with the work that hides them.",
            {**_FUSED, f"{_FUSION}_fuse_all_reduce": True, "xla_enable_async_all_reduce": True},
            _MAXTEXT.format("CF_FOR_ALL_REDUCE"),
        ),
        **{
            f"sparse-core-{name}": OptionSet(
                f"{' and '.join(k.replace('_', '-') + 's' for k in kinds).capitalize()} run on the sparse cores, in no "
                "fusion. Without xla_sc_disjoint_spmem, which newer compilers do not know, and the chip's "
                "configuration, which is no compiler option.",
                _offloaded(*kinds),
                _MAXTEXT.format(f"ENABLE_SPARSECORE_OFFLOADING_FOR_{recipe}"),
            )
            for name, recipe, kinds in (
                ("offload", "RS_AG_AR", ("all_gather", "all_reduce", "reduce_scatter")),
                ("all-gather", "ALL_GATHER", ("all_gather",)),
                ("all-reduce", "ALL_REDUCE", ("all_reduce",)),
                ("reduce-scatter", "REDUCE_SCATTER", ("reduce_scatter",)),
            )
        },
        "reduce-scatter-fusion": OptionSet(
            "An all-reduce of which each device keeps a slice becomes a reduce-scatter in more cases.",
            _LAYOUT,
            _MAXTEXT.format("REDUCE_SCATTER_FUSION"),
        ),
        "all-reduce-scatter-layout": OptionSet(
            "The same, and a memory layout that suits it.",
            {**_LAYOUT, "xla_tpu_assign_all_reduce_scatter_layout": True},
            _MAXTEXT.format("LAYOUT_FOR_ALL_REDUCE_SCATTER"),
        ),
        "async-collective-permute": OptionSet(
            "Collective-permutes run beside other work.",
            {"xla_enable_async_collective_permute": True},
            _MAXTEXT.format("ENABLE_ASYNC_COLLECTIVE_PERMUTE"),
        ),
        "megacore-gather-fusion-off": OptionSet(
            "All-gathers stay out of fusions that are split over a chip's two cores.",
            {"xla_tpu_megacore_fusion_allow_ags": False},
            _MAXTEXT.format("DISABLE_MEGACORE_FUSION_ALLOW_AGS"),
        ),
        "bundle-cost-model-off": OptionSet(
            "Fusions are chosen by the older cost model.",
            {"xla_tpu_use_bundle_aware_cost_model_for_fusions": False},
            _MAXTEXT.format("DISABLE_BUNDLE_AWARE_COST_MODEL"),
        ),
        "vmem-dense": OptionSet(
            "An operation may use 96 MiB of VMEM, which leaves less to what is fetched ahead.",
            {"xla_tpu_scoped_vmem_limit_kib": 98_304},
            _MAXTEXT.format("DENSE_VMEM_LIMIT_FLAG"),
        ),
        "vmem-experts": OptionSet(
            "An operation may use 80 MiB of VMEM: for mixtures of experts.",
            {"xla_tpu_scoped_vmem_limit_kib": 81_920},
            _MAXTEXT.format("MOE_VMEM_LIMIT_FLAG"),
        ),
        "gpu-latency-hiding": OptionSet(
            "The GPU's scheduler moves collectives to where work hides them.",
            {"xla_gpu_enable_latency_hiding_scheduler": True},
            _JAX,
        ),
    }
)
"""Name → options that recipes of MaxText's, and JAX's own pages, use together; each with its source."""

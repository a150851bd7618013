"""Compiler options of XLA, as in `compiler_options` of `jax.jit`.

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
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
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
    """Return compiler options by name; for repeated names, the last value counts.

    Args:
        options: a mapping of names to bools, ints, floats or texts; or text: names of `option_sets`, and flags as in
            XLA_FLAGS and LIBTPU_INIT_ARGS, `--xla_a=true xla_b=24`; or several of these.

    Raises:
        ShardvizError: for a name that is not an identifier, a value of another type, an unknown set, or an option that
            redirects the compiler's dumps.
    """
    if isinstance(options, str):
        return {name: value for part in _parts(options) for name, value in _read(part).items()}
    if isinstance(options, Mapping):
        return {_checked_name(name): _checked(name, value) for name, value in options.items()}
    if isinstance(options, Iterable):
        return {name: value for each in options for name, value in options_of(each).items()}
    raise ShardvizError(f"options={excerpt(repr(options))}: expected a mapping, such as {{'xla_a': True}}, or text")


def options_text(options: Mapping[str, Option]) -> str:
    """Write options as flags, `xla_a=true xla_b=24`, which `options_of` reads."""
    words = {value: word for word, value in _WORDS.items()}

    def text(value):
        return words[value] if isinstance(value, bool) else str(value)

    return shlex.join(f"{name}={text(value)}" for name, value in options.items())


def nearest(name: str) -> str:
    """Return the option of `option_sets` with the most similar name; empty if none is similar."""
    names = {option for each in option_sets.values() for option in each.options} - {name}
    return next(iter(difflib.get_close_matches(name, sorted(names), 1, 0.85)), "")


def _parts(text: str) -> list[str]:
    if len(text) > _LONGEST_TEXT:
        raise ShardvizError(f"options: at most {_LONGEST_TEXT:,} characters of text, not {len(text):,}")
    try:
        return shlex.split(text)
    except ValueError as error:  # an unclosed quote
        raise ShardvizError(f"options={excerpt(repr(text))}: {error}") from None


def _read(part: str) -> dict[str, Option]:
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
            f"options[{excerpt(repr(name))}]: expected a compiler option's name of letters, digits and _ only, such as "
            "'xla_tpu_scoped_vmem_limit_kib'"
        )
    if name.startswith("xla_dump_"):
        raise ShardvizError(
            f"options[{name!r}]: shardviz sets XLA's dump options; leave it out, and read report.stages"
        )
    return name


def _checked(name: str, value: Any) -> Option:
    """Return the value if XLA accepts its type; raise ShardvizError otherwise."""
    is_int, is_text = isinstance(value, int), isinstance(value, str)
    if type(value) not in (bool, int, float, str) or (
        len(value) > _LONGEST_TEXT if is_text else abs(value) >= _LARGEST if is_int else not math.isfinite(value)
    ):
        raise ShardvizError(f"options[{name!r}]={excerpt(repr(value))}: expected a bool, a 64-bit number or a text")
    return value


@dataclass(frozen=True)
class OptionSet:
    """Options that are used together: a description, name → value, and the source."""

    text: str
    options: Mapping[str, Option]
    source: str


def _sets() -> Mapping[str, OptionSet]:
    table = tomllib.loads((files("shardviz.records") / "option_sets.toml").read_text(encoding="utf-8"))
    sets = {}
    for name, each in table["sets"].items():
        page, space, where = each["source"].partition(" ")
        sets[name] = OptionSet(each["text"], each["options"], table["sources"][page] + space + where)
    return MappingProxyType(sets)


option_sets: Mapping[str, OptionSet] = _sets()
"""The sets of `option_sets.toml`, by name: options from MaxText's recipes and JAX's documentation."""

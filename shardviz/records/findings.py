"""A finding: something that a person should look at, in numbers, with its place, its cause and what to try against it.

Some are noticed while a report is made, as a compiler's warnings (`report.diagnostics`); the others follow from the
finished report. `report.findings` has them all, the gravest first. All of it is plain data: nothing here has been
tried, so a `Suggestion` says what to change and not what that would bring.

>>> found = Finding(
...     "not-divided:params['w']", "warning", "w is replicated on the 4 devices along model: 1000 is not "
...     "divisible by 16", value="params['w']", axes=("model",), numbers={"bytes": 4.0e6, "size": 1008},
...     mends=(Suggestion(kind="pad", target="params['w']", dimension=0, size=1008),),
... )
>>> found.rule, found.mends[0].words
('not-divided', "make dimension 0 of params['w'] 1,008 long")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field

from shardviz.display import Displayed, bundle, paint
from shardviz.errors import ShardvizError, excerpt
from shardviz.notation import Axis, Spec
from shardviz.records.amounts import format_count
from shardviz.records.values import Frame

SEVERITIES = ("error", "warning", "note")
"""`error`: it does not run, or computes something else; `warning`: it costs, and can be changed; `note`: worth knowing.
Gravest first."""

SUGGESTIONS = ("argument", "output", "constrain", "pad", "donate", "device-order", "checkpoint", "code")


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A change to try against a finding, as data.

    Attributes:
        kind: what is changed.
            `argument`, `output`: the `target`, a tree path, gets `spec`;
            `constrain`: the value `target`, made at `source`, gets `spec` by a sharding constraint;
            `pad`: dimension `dimension` of the argument `target` becomes `size` long;
            `donate`: the argument `target` is donated;
            `device-order`: the mesh's devices are laid out as `policy` says (`mesh_utils`, `row-major`), or as JAX's
            mesh_utils would do if the mesh's axes stood in the order of `axes`, of which two are exchanged;
            `checkpoint`: the differentiated function is wrapped in `jax.checkpoint` with the policy `policy`;
            `code`: only a person can make it; `text` says what to write.
        target: the tree path of an argument or output, or a value's name.
        spec: the new spec.
        specs, out_specs: of `argument` and `output`: arguments and outputs that change with the target, and their new
            specs.
        dimension, size: of `pad`.
        axes: of `device-order`.
        policy: of `checkpoint`: a name in `jax.checkpoint_policies`; of `device-order`: a named order.
        source: the line where it would be written.
        called: what a person calls the target, where it is a value inside that has no name of its own in the source.
        text: it in words, where the data do not say them.
    """

    kind: str
    target: str = ""
    spec: Spec | None = None
    specs: tuple[tuple[str, Spec], ...] = ()
    out_specs: tuple[tuple[str, Spec], ...] = ()
    dimension: int | None = None
    size: int | None = None
    axes: tuple[str, ...] = ()
    policy: str = ""
    source: Frame | None = None
    called: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind not in SUGGESTIONS:
            raise ShardvizError(f"a suggestion is {', '.join(SUGGESTIONS)}, not {excerpt(str(self.kind))!r}")

    @property
    def words(self) -> str:
        """It in words: `give params['w'] the spec P('data', None)`."""
        if self.text:
            return self.text
        at = f" at {self.source.short}" if self.source else ""
        return {
            "argument": f"give {self.target} the spec {self.spec}",
            "output": f"ask for {self.target} as {self.spec}",
            "constrain": f"constrain {self.called or self.target}{at} to {self.spec}",
            "pad": f"make dimension {self.dimension} of {self.target} {format_count(self.size)} long",
            "donate": f"donate {self.target}",
            "device-order": f"lay the mesh's devices out {self._order}",
            "checkpoint": f"jax.checkpoint with policy {self.policy}",
            "code": "",
        }[self.kind]

    @property
    def _order(self) -> str:
        return f"in {self.policy} order" if self.policy else f"as for the axes {', '.join(self.axes)} in this order"


@dataclass(frozen=True, repr=False)
class Finding:
    """Something that a person should look at.

    Attributes:
        id: the rule that found it, and what of: `not-divided:params['w']`. In `report.findings` no two are the same.
        severity: `error`, `warning` or `note`.
        text: what happens, in a sentence with its numbers.
        why: how it comes about; may be empty.
        source: the line that it is about.
        value: the name of the argument, output or intermediate that it is about.
        axes: the mesh axes that it is about.
        numbers: what `text` has in numbers, the report's own: `bytes` (on one device in a step, or held by it),
            `seconds` (in a step on the target) and `share` (of the step), where the target has a speed; and what the
            rule names besides.
        mends: what to try, untried, the best guess first.
    """

    id: str
    severity: str
    text: str
    _: KW_ONLY
    why: str = ""
    source: Frame | None = None
    value: str = ""
    axes: tuple[Axis, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    mends: tuple[Suggestion, ...] = ()

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ShardvizError(f"a finding's severity is {', '.join(SEVERITIES)}, not {excerpt(str(self.severity))!r}")

    def __repr__(self) -> str:
        return paint("text", self)

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        makers = {"text/plain": lambda: paint("text", self), "text/html": lambda: paint("html", self)}
        return bundle(makers, include, exclude)

    @property
    def rule(self) -> str:
        """The rule that found it: `not-divided`."""
        return self.id.partition(":")[0]

    @property
    def weight(self) -> tuple[int, float, float, str]:
        """By which findings are sorted: severity, then seconds in a step, then bytes."""
        numbers = self.numbers
        grave = SEVERITIES.index(self.severity)
        return grave, -numbers.get("seconds", 0.0), -numbers.get("bytes", 0.0), self.id


class Findings(tuple[Finding, ...], Displayed):
    """All findings of a report, the gravest first: a tuple that shows itself, as text and in a notebook."""

    __repr__ = Displayed.__repr__

    def of(self, rule: str) -> Findings:
        """Those that a rule found."""
        return Findings(finding for finding in self if finding.rule == rule)

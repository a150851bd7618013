"""A finding: something that costs or fails, in numbers, with its place, its cause and suggested changes.

Some findings come from the making of a report, such as a compiler's warnings (`report.diagnostics`); the others follow
from the finished report. `report.findings` has all of them, most severe first. A `Suggestion` is an untried change: it
does not say what the change would save.

>>> finding = Finding(
...     "not-divided:params['w']", "warning", "w is replicated on the 4 devices along model: 1000 is not "
...     "divisible by 16", value="params['w']", axes=("model",), numbers={"bytes": 4.0e6, "size": 1008},
...     suggestions=(Suggestion(kind="pad", target="params['w']", dimension=0, size=1008),),
... )
>>> finding.rule, finding.suggestions[0].words
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
"""Most severe first. `error`: it fails, or computes a wrong result; `warning`: it costs time or memory, and can be
changed; `note`: worth knowing."""

SUGGESTIONS = ("argument", "output", "constrain", "pad", "donate", "device-order", "checkpoint", "code")


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A change to try against a finding, as data.

    Attributes:
        kind: the kind of change.
            `argument`, `output`: the `target`, a tree path, gets `spec`;
            `constrain`: the value `target`, computed at `source`, gets `spec` by a sharding constraint;
            `pad`: dimension `dimension` of the argument `target` gets the length `size`;
            `donate`: the argument `target` is donated;
            `device-order`: the mesh's devices get the order `policy` (`mesh_utils`, `row-major`), or the order of JAX's
            mesh_utils for the mesh's axes in the order `axes`, in which two axes are exchanged;
            `checkpoint`: the differentiated function is wrapped in `jax.checkpoint` with the policy `policy`;
            `code`: a change of the code; `text` describes it.
        target: the tree path of an argument or output, or a value's name.
        spec: the new spec.
        specs, out_specs: for `argument` and `output`: arguments and outputs that change with the target, and their new
            specs.
        dimension, size: for `pad`.
        axes: for `device-order`.
        policy: for `checkpoint`: a name in `jax.checkpoint_policies`; for `device-order`: a named order.
        source: the line for the change.
        called: a description of the target, if it is a value inside that has no name of its own in the source.
        text: the change in words, if the data do not describe it.
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
        """The change in words: `give params['w'] the spec P('data', None)`."""
        if self.text:
            return self.text
        at = f" at {self.source.short}" if self.source else ""
        order = f"in {self.policy} order" if self.policy else f"as mesh_utils does for the axes {', '.join(self.axes)}"
        return {
            "argument": f"give {self.target} the spec {self.spec}",
            "output": f"ask for {self.target} as {self.spec}",
            "constrain": f"constrain {self.called or self.target}{at} to {self.spec}",
            "pad": f"make dimension {self.dimension} of {self.target} {format_count(self.size)} long",
            "donate": f"donate {self.target}",
            "device-order": f"order the mesh's devices {order}",
            "checkpoint": f"jax.checkpoint with policy {self.policy}",
            "code": "",
        }[self.kind]


@dataclass(frozen=True, repr=False)
class Finding:
    """Something that a user should look at.

    Attributes:
        id: the rule and its subject: `not-divided:params['w']`, unique in `report.findings`.
        severity: `error`, `warning` or `note`.
        text: the problem, in a sentence with its numbers.
        why: its cause; may be empty.
        source: its source line.
        value: the name of its argument, output or intermediate.
        axes: its mesh axes.
        numbers: the numbers in `text`: `bytes` (moved in a step, or used, on one device), `seconds` (in a step on the
            target) and `share` (of the step) if the target has a speed, and further numbers of the rule.
        suggestions: suggested changes, untried, the best guess first.
    """

    id: str
    severity: str
    text: str
    _: KW_ONLY
    why: str = ""
    source: Frame | None = None
    value: str = ""
    axes: tuple[Axis, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    suggestions: tuple[Suggestion, ...] = ()

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
        """The rule of the finding: `not-divided`."""
        return self.id.partition(":")[0]

    @property
    def weight(self) -> tuple[int, float, float, str]:
        """The sort key of findings: severity, then seconds in a step, then bytes."""
        numbers = self.numbers
        grave = SEVERITIES.index(self.severity)
        return grave, -numbers.get("seconds", 0.0), -numbers.get("bytes", 0.0), self.id


class Findings(tuple[Finding, ...], Displayed):
    """All findings of a report, most severe first: a tuple that shows itself as text and in a notebook."""

    __repr__ = Displayed.__repr__

    def of(self, rule: str) -> Findings:
        """Return the findings of a rule."""
        return Findings(finding for finding in self if finding.rule == rule)

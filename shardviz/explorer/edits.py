"""All edits of an explorer as one tagged union, for the page's messages and for Python calls.

A page's message is untrusted JSON. `read` validates it once and refuses invalid messages as a whole. From Python an
edit takes the same values as the plan, such as a PartitionSpec.

>>> read({"op": "set_dim", "name": "w", "dimension": 0, "axes": [["z", 1, 2]]})
SetDim(name='w', dimension=0, axes=(('z', 1, 2),), twins=False, layers=False, output=False)
>>> read({"op": "set_dim", "name": "w", "dimension": "0", "axes": []})
Traceback (most recent call last):
    ...
shardviz.errors.ShardvizError: the page sent an edit that does not fit: Expected `int`, got `str` - at `$.dimension`
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, get_args

import msgspec
from msgspec import Meta

from shardviz.errors import ShardvizError, excerpt
from shardviz.notation.bounds import MOST_DEVICES, MOST_NAMED, MOST_PASTED

Text = Annotated[str, Meta(max_length=MOST_PASTED)]
Whole = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
Axis = str | tuple[str, int, int]  # the spec checks bounds: msgspec 0.22 misreads a tuple beside a bound
Axes = Annotated[tuple[Axis, ...], Meta(max_length=MOST_NAMED)]


def _op(name: str) -> str:
    """Return `set_dim` for `SetDim`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class _Edit(msgspec.Struct, frozen=True, tag_field="op", tag=_op, forbid_unknown_fields=True):
    """An edit; a refusal is shown at `refused_at` (see `Snapshot.error`), and `about` is the field that names the
    edited object."""

    refused_at: ClassVar[str] = "plan"
    about: ClassVar[str] = ""


class PlanEdit(_Edit, frozen=True):
    """An edit that leads to another plan; `apply.plan_after` computes it."""


class CardEdit(_Edit, frozen=True):
    """An edit of the cards (see `cards.py`)."""

    refused_at: ClassVar[str] = "card"


class ArrayEdit(PlanEdit, frozen=True):
    """An edit of an argument or an output."""

    refused_at: ClassVar[str] = "argument"
    about: ClassVar[str] = "name"
    name: Text


class ShardingEdit(ArrayEdit, frozen=True, kw_only=True):
    """An edit of an array's sharding.

    `twins` applies it to the argument's twins too (`arrays.py`); `layers` only to those of other layers.
    """

    twins: bool = False
    layers: bool = False
    output: bool = False


class SetSpec(ShardingEdit, frozen=True):
    """Set the spec: text such as `P('data', None)`, from Python also a PartitionSpec, a tuple or None. None leaves an
    output to the compiler."""

    spec: Text | None


class SetDim(ShardingEdit, frozen=True):
    """Set the mesh axes of one dimension, major to minor; other dimensions keep their axes."""

    dimension: Whole
    axes: Axes


class MoveAxis(ShardingEdit, frozen=True):
    """Move or add a mesh axis to a dimension, as the last axis or at a position among its axes."""

    axis: Text
    dimension: Whole
    place: Whole | None = None


class SetMemory(ArrayEdit, frozen=True):
    """Put the array into a memory: `device`, or the host's `pinned_host` or `unpinned_host`."""

    kind: Text
    output: bool = False


class ConstrainValue(PlanEdit, frozen=True, tag="constrain"):
    """Put a sharding constraint on a value inside the function; without a spec, remove it.

    The value is an intermediate of the report, a variable, or an expression of the source at `line`, such as
    `model.py:64`.
    """

    refused_at: ClassVar[str] = "value"
    about: ClassVar[str] = "name"
    name: Text
    spec: Text | None
    line: Text | None = None


class ShardDimension(PlanEdit, frozen=True):
    """Shard a logical dimension in all its arrays along exactly these mesh axes; see `Plan.with_dimension`."""

    refused_at: ClassVar[str] = "dimension"
    about: ClassVar[str] = "name"
    name: Text
    axes: Axes


class _MeshEdit(PlanEdit, frozen=True):
    refused_at: ClassVar[str] = "mesh"
    about: ClassVar[str] = "name"


class AddAxis(_MeshEdit, frozen=True):
    """Add a minor mesh axis. A typed size that is no number is refused by the mesh."""

    name: Text
    size: Whole | Text


class RemoveAxis(_MeshEdit, frozen=True):
    """Remove a mesh axis, also from every spec."""

    name: Text


class RenameAxis(_MeshEdit, frozen=True):
    """Rename a mesh axis, also in every spec."""

    about: ClassVar[str] = "old"
    old: Text
    new: Text


class ResizeAxis(_MeshEdit, frozen=True):
    """Set the size of a mesh axis."""

    name: Text
    size: Whole | Text


class SetMesh(_MeshEdit, frozen=True):
    """Set the mesh: anything that `sv.mesh` takes, such as `"data=8,model=4"`."""

    about: ClassVar[str] = ""
    mesh: Any


class SetTarget(_Edit, frozen=True):
    """Choose the machine for all cards, as `machine_choice.read` takes it, with as many devices as the mesh."""

    refused_at: ClassVar[str] = "target"
    about: ClassVar[str] = "target"
    target: Text


class SetOptions(PlanEdit, frozen=True):
    """Replace the compiler options: text as `Plan.with_options` takes it, empty for none; from Python also a
    mapping."""

    refused_at: ClassVar[str] = "options"
    options: Text


class SetOrder(PlanEdit, frozen=True):
    """Set the device order of the mesh: `mesh_utils` (as JAX would choose), `row-major`, or the devices' ids as numbers
    or text, such as `0,1,3,2` or `[2,4]T(1,0)`."""

    refused_at: ClassVar[str] = "order"
    order: Text | Annotated[tuple[Whole, ...], Meta(max_length=MOST_DEVICES)]


class ExchangeAxes(PlanEdit, frozen=True):
    """Use the device order that JAX would choose if two mesh axes were swapped."""

    refused_at: ClassVar[str] = "order"
    one: Text
    other: Text


class _RuleEdit(PlanEdit, frozen=True):
    refused_at: ClassVar[str] = "rule"


class AddRule(_RuleEdit, frozen=True):
    """Add a last rule: a pattern of the tree path, and the spec of the arguments that it matches."""

    pattern: Text
    spec: Text


class MakeRule(_RuleEdit, frozen=True):
    """Add a rule before all others with an argument's current spec; edits of the matched arguments are dropped."""

    pattern: Text
    name: Text


class SetRule(_RuleEdit, frozen=True):
    """Change the pattern or spec of the rule at a position, from 0."""

    place: Whole
    pattern: Text | None = None
    spec: Text | None = None


class MoveRule(_RuleEdit, frozen=True):
    """Move a rule; the first rule that matches an argument wins."""

    place: Whole
    to: Whole


class RemoveRule(_RuleEdit, frozen=True):
    place: Whole


class SetPlan(PlanEdit, frozen=True):
    """Replace the whole plan."""

    plan: Any


class TakeAlternative(_Edit, frozen=True):
    """Take one of the `alternatives` for the last refused edit, by its position."""

    place: Whole


class Dismiss(_Edit, frozen=True):
    """Remove the message about a refused edit."""


class Undo(_Edit, frozen=True):
    """Return to the plan and target before the last edit."""


class Redo(_Edit, frozen=True):
    """Return to the plan and target that `undo` left."""


class Pin(CardEdit, frozen=True):
    """Keep the current plan as a card; without a name, one is generated."""

    name: Text = ""


class OpenCard(CardEdit, frozen=True):
    """Open a card by its id; an undo goes back."""

    card: Text


class AddCard(CardEdit, frozen=True):
    """Add a card for a plan without opening it; a number is appended if the name is taken."""

    name: Text
    plan: Any
    note: Text = ""


class RenameCard(CardEdit, frozen=True):
    """Rename a card; a draft with a name is kept."""

    card: Text
    name: Text


class MoveCard(CardEdit, frozen=True):
    """Move a card to a position, from 0."""

    card: Text
    to: Whole


class DeleteCard(CardEdit, frozen=True):
    """Delete a card other than the baseline and the open one."""

    card: Text


class CompareWith(CardEdit, frozen=True):
    """Compare all cards with this card, initially the baseline."""

    card: Text


class TakePreset(CardEdit, frozen=True):
    """Add a preset as a card and open it."""

    preset: Text


class TakeFix(_Edit, frozen=True):
    """Apply a fix to the plan; a fix that changes the program adds a card. One undo reverts it."""

    action: Text


class TryPresets(_Edit, frozen=True):
    """Try the presets on the plan's mesh and machine, and show them."""


class ClosePresets(_Edit, frozen=True):
    """Hide the presets, and stop trying them."""


class BeginSearch(_Edit, frozen=True):
    """Search for the best plan on the machine; the best one found so far is a card."""


class StopSearch(_Edit, frozen=True):
    """Stop the search; its results stay."""


class TryFixes(_Edit, frozen=True):
    """Try fixes now. With an event loop this happens by itself after a moment without changes."""


class RunCode(_Edit, frozen=True):
    """Run the plan's code on at most 8 simulated devices with small arrays, in its own process."""


class StopCode(_Edit, frozen=True):
    """Stop the run of the plan's code."""


class AskWhy(_Edit, frozen=True):
    """Ask why a value is sharded as it is, or why a collective exists, by its name in the report; for a value also
    along one mesh axis."""

    name: Text
    axis: Text = ""


class CloseWhy(_Edit, frozen=True):
    """Remove the question and its answer."""


class FindDimensions(_Edit, frozen=True):
    """Compute the logical dimensions in the background, for `Snapshot.logical`."""


class Stop(_Edit, frozen=True):
    """Stop the running or waiting compile; the report stays."""


class Recompile(_Edit, frozen=True):
    """Compile the current plan again, after a stop or a failure."""


class Select(_Edit, frozen=True):
    """Select a value by its name at a level (empty: the report's level), because a page may show an older report."""

    name: Text
    level: Text = ""


PageEdit = (
    SetSpec | SetDim | MoveAxis | SetMemory | ConstrainValue | ShardDimension
    | AddAxis | RemoveAxis | RenameAxis | ResizeAxis | SetTarget | SetOptions | SetOrder | ExchangeAxes
    | AddRule | MakeRule | SetRule | MoveRule | RemoveRule | TakeAlternative | Dismiss | Undo | Redo
    | Pin | OpenCard | RenameCard | MoveCard | DeleteCard | CompareWith | TakePreset | TakeFix
    | TryPresets | ClosePresets | BeginSearch | StopSearch | TryFixes
    | RunCode | StopCode | AskWhy | CloseWhy | Stop | Recompile
)  # fmt: skip
"""The edits that a page may send."""
Edit = PageEdit | SetMesh | SetPlan | AddCard | FindDimensions | Select
"""All edits. Python may also pass plans and meshes as objects; the page sends `Select` as a trait."""

PAGE_EDITS: Mapping[str, type[_Edit]] = {kind.__struct_config__.tag: kind for kind in get_args(PageEdit)}
"""`op` → class of the edits that a page may send."""
EDITS: Mapping[str, type[_Edit]] = {kind.__struct_config__.tag: kind for kind in get_args(Edit)}
"""`op` → class of every edit."""


def read(message: Any) -> PageEdit:
    """Return the edit of a page's message. Raises ShardvizError if there is no such edit, or its fields are invalid."""
    return fitting(message, PageEdit, "an edit")


def fitting(value: Any, kind: Any, what: str) -> Any:
    """Convert a page's value to a type. Raises ShardvizError that names it `what` if it does not fit."""
    try:
        read = msgspec.convert(value, kind)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded
    except (msgspec.ValidationError, UnicodeError, RecursionError) as error:
        why = str(error) if isinstance(error, msgspec.ValidationError) else type(error).__name__
        raise ShardvizError(f"the page sent {what} that does not fit: {excerpt(why)}") from None
    return read

"""Every edit that a person can ask of an explorer, as one tagged union: what the page sends, and what Python calls.

A page's message is plain JSON from a browser, so anything may stand in it. `read` checks it once, where it arrives;
what does not fit is refused as a whole. From Python an edit takes what the plan takes too, such as a PartitionSpec.

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
Axis = str | tuple[str, int, int]  # without bounds, which the spec has: msgspec 0.22 misreads a tuple beside a bound
Axes = Annotated[tuple[Axis, ...], Meta(max_length=MOST_NAMED)]


def _op(name: str) -> str:
    """`SetDim` → `set_dim`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class _Edit(msgspec.Struct, frozen=True, tag_field="op", tag=_op, forbid_unknown_fields=True):
    """An edit; `refused_at` is where a refusal is shown (see `Snapshot.error`), `about` the field that says what is
    edited, if any."""

    refused_at: ClassVar[str] = "plan"
    about: ClassVar[str] = ""


class PlanEdit(_Edit, frozen=True):
    """An edit that asks for another plan; `apply.plan_after` makes it."""


class CardEdit(_Edit, frozen=True):
    """An edit of the cards; `cards.py` says what a card is."""

    refused_at: ClassVar[str] = "card"


class ArrayEdit(PlanEdit, frozen=True):
    """An edit of an argument, or of an `output`."""

    refused_at: ClassVar[str] = "argument"
    about: ClassVar[str] = "name"
    name: Text


class ShardingEdit(ArrayEdit, frozen=True, kw_only=True):
    """An edit of how it is sharded; `twins`: of its twins too (`arrays.py`), which an argument has; `layers`: of those
    of other layers alone."""

    twins: bool = False
    layers: bool = False
    output: bool = False


class SetSpec(ShardingEdit, frozen=True):
    """Sets the spec: text such as `P('data', None)`; from Python a PartitionSpec, a tuple, None too. None leaves an
    output to the compiler."""

    spec: Text | None


class SetDim(ShardingEdit, frozen=True):
    """Sets the mesh axes along which one dimension is sharded, major to minor; the other dimensions keep what they
    have, or what the compiler chose."""

    dimension: Whole
    axes: Axes


class MoveAxis(ShardingEdit, frozen=True):
    """Moves or adds a mesh axis to a dimension, last or at a place among that dimension's axes."""

    axis: Text
    dimension: Whole
    place: Whole | None = None


class SetMemory(ArrayEdit, frozen=True):
    """Puts the array into another memory: `device`, or its host's, `pinned_host` or `unpinned_host`."""

    kind: Text
    output: bool = False


class ConstrainValue(PlanEdit, frozen=True, tag="constrain"):
    """Puts a sharding constraint on a value inside the function; without a spec it takes the constraint away.

    The value is an intermediate of the report, a variable, or an expression of the source; `line` is where, as
    `model.py:64`.
    """

    refused_at: ClassVar[str] = "value"
    about: ClassVar[str] = "name"
    name: Text
    spec: Text | None
    line: Text | None = None


class CutDimension(PlanEdit, frozen=True):
    """Shards a logical dimension, wherever it occurs, along these mesh axes alone; see `Plan.with_dimension`."""

    refused_at: ClassVar[str] = "dimension"
    about: ClassVar[str] = "name"
    name: Text
    axes: Axes


class _MeshEdit(PlanEdit, frozen=True):
    refused_at: ClassVar[str] = "mesh"
    about: ClassVar[str] = "name"


class AddAxis(_MeshEdit, frozen=True):
    """Adds a mesh axis, the minor one. A size that is text was typed and is no number: the mesh says what is wrong."""

    name: Text
    size: Whole | Text


class RemoveAxis(_MeshEdit, frozen=True):
    """Removes a mesh axis, from every spec too."""

    name: Text


class RenameAxis(_MeshEdit, frozen=True):
    """Renames a mesh axis, in every spec too."""

    about: ClassVar[str] = "old"
    old: Text
    new: Text


class ResizeAxis(_MeshEdit, frozen=True):
    """Sets the number of devices along a mesh axis."""

    name: Text
    size: Whole | Text


class SetMesh(_MeshEdit, frozen=True):
    """Sets the whole mesh: anything that `sv.mesh` takes, such as `"data=8,model=4"`."""

    about: ClassVar[str] = ""
    mesh: Any


class SetTarget(_Edit, frozen=True):
    """Chooses the machine, as `machine_choice.read` takes it, with as many devices as the mesh. All cards follow."""

    refused_at: ClassVar[str] = "target"
    about: ClassVar[str] = "target"
    target: Text


class SetOptions(PlanEdit, frozen=True):
    """Sets the compiler options, in place of those that the plan has: text as `Plan.with_options` takes it, empty for
    none; from Python a mapping too."""

    refused_at: ClassVar[str] = "options"
    options: Text


class SetOrder(PlanEdit, frozen=True):
    """Sets the order of the mesh's devices on a machine: `mesh_utils` (as JAX would choose), `row-major` (device i at
    place i), or the devices' ids, as numbers or as text such as `0,1,3,2` or `[2,4]T(1,0)`."""

    refused_at: ClassVar[str] = "order"
    order: Text | Annotated[tuple[Whole, ...], Meta(max_length=MOST_DEVICES)]


class ExchangeAxes(PlanEdit, frozen=True):
    """Puts the devices in the order that JAX would choose if two mesh axes stood in each other's place."""

    refused_at: ClassVar[str] = "order"
    one: Text
    other: Text


class _RuleEdit(PlanEdit, frozen=True):
    refused_at: ClassVar[str] = "rule"


class AddRule(_RuleEdit, frozen=True):
    """Adds a rule, the last: a pattern of the tree path, and the spec of every argument that it catches."""

    pattern: Text
    spec: Text


class MakeRule(_RuleEdit, frozen=True):
    """Adds a first rule, with the spec that an argument has now; edits of the arguments that it catches are dropped."""

    pattern: Text
    name: Text


class SetRule(_RuleEdit, frozen=True):
    """Gives the rule at a place (from 0) another pattern or spec."""

    place: Whole
    pattern: Text | None = None
    spec: Text | None = None


class MoveRule(_RuleEdit, frozen=True):
    """Moves a rule to another place: the first that catches an argument wins."""

    place: Whole
    to: Whole


class RemoveRule(_RuleEdit, frozen=True):
    """Removes a rule."""

    place: Whole


class SetPlan(PlanEdit, frozen=True):
    """Takes another plan as a whole."""

    plan: Any


class TakeWay(_Edit, frozen=True):
    """Takes one of the `ways` on from the edit that was refused last, by its place among them."""

    place: Whole


class Dismiss(_Edit, frozen=True):
    """Takes away what was said of a refused edit."""


class Undo(_Edit, frozen=True):
    """Goes back to the plan and the target before the last edit."""


class Redo(_Edit, frozen=True):
    """Goes forward to the plan and the target that `undo` left."""


class Pin(CardEdit, frozen=True):
    """Keeps the plan as it is now as a card; without a name it gets one."""

    name: Text = ""


class OpenCard(CardEdit, frozen=True):
    """Goes on with the plan of another card, by its id; an undo goes back."""

    card: Text


class AddCard(CardEdit, frozen=True):
    """Adds a card for a plan, which is not opened; with a number behind its name where another card has that name."""

    name: Text
    plan: Any
    note: Text = ""


class RenameCard(CardEdit, frozen=True):
    """Gives a card another name; a draft with a name is kept."""

    card: Text
    name: Text


class MoveCard(CardEdit, frozen=True):
    """Puts a card at another place, from 0."""

    card: Text
    to: Whole


class DeleteCard(CardEdit, frozen=True):
    """Deletes a card, but neither the baseline nor the open one."""

    card: Text


class CompareWith(CardEdit, frozen=True):
    """Has all differences told to a card, the baseline at first."""

    card: Text


class TakeOffer(CardEdit, frozen=True):
    """Makes a preset a card and goes to its plan."""

    offer: Text


class TakeRemedy(_Edit, frozen=True):
    """Changes the plan as a mend says, or the program, which makes a card; one undo takes it back."""

    action: Text


class OfferPresets(_Edit, frozen=True):
    """Has the presets tried on the plan's mesh and machine, and opens them."""


class CloseOffers(_Edit, frozen=True):
    """Closes the presets; what is being tried is stopped."""


class FindBest(_Edit, frozen=True):
    """Searches for the best plan on the machine; the plans that it finds are cards, which improve as it goes on."""


class StopFinding(_Edit, frozen=True):
    """Ends the search; what it found stays."""


class TryRemedies(_Edit, frozen=True):
    """Tries now what helps the plan; where an event loop runs that is done when nothing has changed for a moment."""


class AskWhy(_Edit, frozen=True):
    """Asks why a value is sharded as it is, or why a collective is there, by its name in the report; of a value along
    one mesh axis, or along all of them where none is given."""

    name: Text
    axis: Text = ""


class CloseWhy(_Edit, frozen=True):
    """Takes the question and its answer away."""


class FindDimensions(_Edit, frozen=True):
    """Has the logical dimensions found in the background; `Snapshot.logical` has them when they are there."""


class Stop(_Edit, frozen=True):
    """Stops the compile that runs or is about to; the report stays as it is."""


class Recompile(_Edit, frozen=True):
    """Compiles the present plan again, after a stop or a failure."""


class Select(_Edit, frozen=True):
    """Selects a value by the name that it has at a level (empty: the report's own): a page may show an older report
    when clicked."""

    name: Text
    level: Text = ""


PageEdit = (
    SetSpec | SetDim | MoveAxis | SetMemory | ConstrainValue | CutDimension
    | AddAxis | RemoveAxis | RenameAxis | ResizeAxis | SetTarget | SetOptions | SetOrder | ExchangeAxes
    | AddRule | MakeRule | SetRule | MoveRule | RemoveRule | TakeWay | Dismiss | Undo | Redo
    | Pin | OpenCard | RenameCard | MoveCard | DeleteCard | CompareWith | TakeOffer | TakeRemedy
    | OfferPresets | CloseOffers | FindBest | StopFinding | TryRemedies
    | AskWhy | CloseWhy | Stop | Recompile
)  # fmt: skip
"""What a page may ask for."""
Edit = PageEdit | SetMesh | SetPlan | AddCard | FindDimensions | Select
"""What Python may ask for: plans and meshes as objects besides, and what the page says by a trait."""

PAGE_EDITS: Mapping[str, type[_Edit]] = {kind.__struct_config__.tag: kind for kind in get_args(PageEdit)}
"""`op` → its class, of what a page may ask for."""
EDITS: Mapping[str, type[_Edit]] = {kind.__struct_config__.tag: kind for kind in get_args(Edit)}
"""`op` → its class, of every edit."""


def read(message: Any) -> PageEdit:
    """The edit that a page's message asks for; a `ShardvizError` where there is no such edit, or these are not its
    fields."""
    return fitting(message, PageEdit, "an edit")


def fitting(value: Any, kind: Any, what: str) -> Any:
    """What a page sent, as a type has it; a `ShardvizError` that begins with `what` was sent where it does not fit."""
    try:
        read = msgspec.convert(value, kind)
        json.dumps(value, ensure_ascii=False).encode()  # half a letter (a surrogate) can be sent nowhere
    except (msgspec.ValidationError, UnicodeError, RecursionError) as error:
        why = str(error) if isinstance(error, msgspec.ValidationError) else type(error).__name__
        raise ShardvizError(f"the page sent {what} that does not fit: {excerpt(why)}") from None
    return read

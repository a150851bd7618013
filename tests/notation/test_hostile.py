"""Whatever is given to a reader, it answers within 0.2 s and 100 MB, or refuses it with a message that is short."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.notation.attacked import Attacked, Pieces, wrong

pytestmark = pytest.mark.long

MILLION = 1_000_000
ANY = (
    *("sharding", "sharding, large mesh", "sharding, no mesh", "mesh", "groups", "pairs", "shape", "pane"),
    "machine",
)
"""Readers that every text is given to."""


@pytest.fixture(scope="module")
def attacked():
    process = Attacked()
    yield process
    process.close()


def times(piece: str, n: int, before: str = "", behind: str = "") -> Pieces:
    return [(before, 1), (piece, n), (behind, 1)]


def listed(numbers, before: str = "", behind: str = "") -> Pieces:
    return [(before + ",".join(map(str, numbers)) + behind, 1)]


EVERYWHERE: list[Pieces] = [
    *(times(c, 10 * MILLION) for c in "{[(<9a'\"\\ ,·"),
    *(times(c, 999_000) for c in "{[(<9a'\"\\ ,"),
    *(times(c, 19_000) for c in "{[(<9a'\"\\ ,"),
    *(
        times(piece, 20_000)
        for piece in ('{"\\', "{'", "/*", "{}", "{},", "{{", "a.", "f()", "1+", "a,", "{a", "T(", "[1,")
    ),
    *(times(piece, 400_000) for piece in ("{}", "{},", "{0},", "[],", "''", "/**/", '\\"', "=1,", "a=1,")),
]
READ: list[tuple[str, Pieces]] = [
    # the cases that hung, swelled or repeated themselves, one of a kind
    *(("sharding" + mesh, [("{devices=[", 1), ("1,", 31), ("4194304]<=[4194304]}", 1)]) for mesh in ("", ", no mesh")),
    *((f"sharding, {mesh} mesh", [("{devices=[131072]<=[131072]}", 1)]) for mesh in ("no", "large")),
    ("sharding, large mesh", listed(range(1 << 17), "{devices=[131072]", "}")),
    ("sharding, large mesh", listed([i * 4099 % (1 << 17) for i in range(1 << 17)], "{devices=[64,2048]", "}")),
    (
        "sharding, no mesh",
        [("{devices=[4194304]<=[", 1), ("2,", 21), ("2]T(", 1), *((f"{i},", 1) for i in range(21, 0, -1)), ("0)}", 1)],
    ),
    (
        "sharding, large mesh",
        listed(range((1 << 17) - 1, -1, -1), "{mesh['a'=512,'b'=256], device_ids=(", "), [{'b'}]}"),
    ),
    ("sharding", [('{{"\\', 13_000)]),
    ("sharding", times("'a',", 100_000, "{mesh['a'=2], [{", "}]}")),
    ("sharding", times('"a":(1)1,', 100_000, "#sdy.sharding<@mesh, [{", '"a"}]>')),
    ("sharding", times("{},", 100_000, "#sdy.sharding<@mesh, [", "{}]>")),
    ("Shardy", times("<@mesh, [{}]>,", 100_000, "#sdy.sharding_per_value<[", "<@mesh, []>]>")),
    ("mesh", [("".join(f"a{i}=1," for i in range(20_000)), 1)]),
    ("mesh", [("Mesh(" + ", ".join(f"'a{i}': 1" for i in range(20_000)) + ")", 1)]),
    ("mesh", [("mesh[" + ",".join(f"'a{i}'=2" for i in range(22)) + "]", 1)]),
    ("mesh", [(",".join(f"a{i}=2*1" for i in range(16)), 1)]),
    ("mesh", [("a=2*65536," + ",".join(f"a{i}=1" for i in range(31)), 1)]),
    ("mesh", listed(range((1 << 17) - 1, -1, -1), "a=512,b=256 devices=[", "]")),
    ("mesh", [("a=2 devices=[", 1), ("9", 5_000), (",1]", 1)]),
    ("mesh", times("x", 100_000, "'", "'=2")),
    ("mesh", times(" ", 999_000, "a=2", "=2")),
    ("mesh", times("devices = [", 100_000, "a=2 ")),
    ("groups", [("{", 1), ("{0},", 20_000), (",".join(map(str, range(20_000))).join("{}"), 1), ("}", 1)]),
    ("groups", [("{", 1), *((("{" + "0," * i + "0},"), 1) for i in range(0, 2_000, 7)), ("}", 1)]),
    ("groups", [("{{", 1), ("9", 5_000), (",1}}", 1)]),
    ("groups", times("{'axis_1'", 200_000, "mesh['axis_0'=2,'axis_1'=4] ")),
    ("groups", [("[1", 1), (",1", 40), ("]<=[8]", 1)]),
    ("groups", [("[2,4]<=[", 1), ("9", 18), ("]", 1)]),
    ("many groups", [("{{" + "},{".join(map(str, range(1 << 17))) + "}}", 1)]),
    ("many groups", [("[512,256]<=[512,128,2]T(2,1,0)", 1)]),
    ("many groups", [("mesh['a'=512,'b'=256] {'a'}", 1)]),
    ("pairs", [("{{9", 1), ("9", 5_000), (",1}}", 1)]),
    ("pairs", times("{0,1},", 300_000, "{", "{1,0}}")),
    ("sharding", times("a" * 40 + ",", 250, "A[I_{", "a}]")),
    ("sharding", times(" ", 19_900, "[a]", "sum over b")),
    ("sharding", times("·,", 9_900, "[", "·]")),
    ("sharding, large mesh", times("·,", 63, "[", "·]")),
    ("sharding", times("J,", 9_900, "A[", "I_a]")),
    ("sharding", times("{", 19_900, "A[I_", "]")),
    ("sharding", times("a manual ", 2_000, "[·] manual ")),
    ("machine", [("tpu v5e:", 1), ("9", 5_000)]),
    ("machine", times("2x", 400, "tpu v5e:", "2")),
    # Python that is deep
    *(("sharding", times("a.", n, "P(", "a)")) for n in (400, 9_000)),
    *(("sharding", times(piece, 9_000, "P(", behind)) for piece, behind in (("1+", "1)"), ("(", "))"), ("-", "1)"))),
    ("sharding", times("1+", 400, "P(unreduced_kind=", "1)")),
    ("sharding", times("{", 9_000, "P(unreduced=")),
    ("sharding", times("None,", 3_900, "P(", ")")),
    ("sharding", times("unreduced={'a'},", 1_000, "P(", ")")),
    ("sharding, no mesh", times(", memory_kind=a", 100_000, "NamedSharding(mesh=Mesh('a': 2), spec=P()", ")")),
    ("sharding", times("x", 999_000, "{mesh['a'=8], [{'", "'}]}")),
    *(
        ("sharding of rank 2", times(piece, 999_000 // len(piece), "{replicated ", "}"))
        for piece in (" ", "/* */", "shard_as 1 ", "metadata={} ")
    ),
    ("sharding of rank 2", times("{", 499_000, "{replicated metadata=", "}")),
    # serialized messages
    *(
        ("bytes", times(piece, 999_000 // len(piece)))
        for piece in ("\x08\x03", "\x20\x01", "\x2a\x00", "\x18\xff", "\xff", "\0", "\x3a\x02\x08\x01")
    ),
    *(("bytes", times(piece, 500_000)) for piece in ("\x2a\x00", "\x2a\x02\x08\x00")),
    ("bytes", times("\xff", 999_000, "\x08\x03\x22\xd8\xfc\x3c")),
    ("bytes", times("\x01", 10 * MILLION, "\x22\x80\xad\xe2\x04")),
    ("bytes", times("\x22\x01\x00\x20\x00", 100_000)),
    # shapes of HLO
    ("shape", times("(", 100_000, "", "f32[]")),
    ("shape", times("(", 50, "", "f32[]" + ")" * 50)),
    ("shape", times("f32[1],", 20_000, "(", "f32[])")),
    ("shape", times("/*", 499_000, "(f32[]")),
    ("shape", times("1,", 499_000, "f32[", "1]")),
    ("shape", times("{", 499_000, "f32[1]")),
    ("shape", times(" ", 999_000, "(f32[1],", "f32[1])")),
]


def shown(pieces: Pieces) -> str:
    return " ".join(f"{piece[:30]!r} x {n}" for piece, n in pieces[:4])


def test_texts_that_once_hung_or_swelled(attacked):
    found = [(reader, shown(pieces), why) for reader, pieces in READ if (why := wrong(attacked(reader, pieces)))]
    assert not found, "\n".join(map(str, found))


def test_what_is_repeated_without_end_is_nothing_to_any_reader(attacked):
    found = [
        (reader, shown(pieces), why)
        for pieces in EVERYWHERE
        for reader in ANY
        if (why := wrong(attacked(reader, pieces)))
    ]
    assert not found, "\n".join(map(str, found))


ALPHABETS = {
    "sharding": (
        *"{}[]()<>'\",:=?·_-*.\\ \n09aT",
        *(
            "{devices=[",
            "]<=[",
            "T(",
            "{mesh[",
            "'a'=2",
            "'a'",
            '"a"',
            "P(",
            "None",
            "A[I_",
            "mesh<[",
            "]>",
            "/*",
            "*/",
        ),
        *("#sdy.sharding<@mesh, [", "unreduced={", "metadata=", "sum over ", " manual ", "?}p1"),
        *("last_tile_dims={", "replicated", "maximal device="),
        *("device_ids=(", "9" * 20, "131072", "NamedSharding(mesh=", "Mesh('a': 2)", ", spec=", "unreduced_kind="),
    ),
    "mesh": (
        *"=,:*'\"[]()<> \\09aT",
        *("a=2", "devices=[", "slices=[", "mesh[", "mesh<[", "'a'=2", "Mesh(", "axis_types=(", "Auto", "2*2"),
    ),
    "groups": (*"{}[](),= '09T", "{0,1}", "{{0,1}", "[2,4]", "<=[8]", "T(1,0)", "mesh['a'=2,'b'=4]", "{'a'}", "9" * 20),
    "shape": (*"()[]{}<=?,: 09", "f32[", "f32[4]", "{1,0:T(8)}", "/*", "*/", "9" * 20, "pred[]"),
    "bytes": (
        *"\x00\x01\x08\x18\x22\x2a\x3a\x72\x7f\x80\xff",
        *("\x08\x03", "\x2a\x02\x08\x00", "\x22\x04\x00\x01\x02\x03"),
    ),
}
SAME = {
    "sharding": (*("sharding", "sharding, no mesh", "pane", "tile counts", "spec of HLO", "Shardy"),),
    "mesh": ("mesh",),
    "groups": ("groups", "pairs", "many groups"),
    "shape": ("shape",),
    "bytes": ("bytes",),
}


@st.composite
def attacks(draw):
    """A few pieces of a notation, each once or very often, and a reader of it."""
    kind = draw(st.sampled_from([*["sharding"] * 4, *ALPHABETS]))
    piece = st.lists(st.sampled_from(ALPHABETS[kind]), min_size=1, max_size=4).map("".join)
    often = st.sampled_from([1, 1, 2, 30, 1_000, 20_000, 300_000])
    pieces = draw(st.lists(st.tuples(piece, often), min_size=1, max_size=6))
    return draw(st.sampled_from(SAME[kind])), [(text, n if len(text) * n < 3_000_000 else 1) for text, n in pieces]


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(attack=attacks())
def test_random_texts_of_any_length(attacked, attack):
    reader, pieces = attack
    assert not (why := wrong(attacked(reader, pieces))), (reader, shown(pieces), why)


MODULE = """HloModule jit_f, num_partitions=8{header}

FileNames
1 "a.py"
StackFrames
1 {{file_location_id=1 {frame}}}

%add (x: f32[], y: f32[]) -> f32[] {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}}

ENTRY %main (a: f32[8]) -> f32[8] {{
  %a = {shape} parameter({number}), sharding={sharding}
  %b = f32[8] {opcode}({operands}), replica_groups={groups}, to_apply=%add, metadata={{op_name="f" {metadata}}}
  %c = f32[8] dot(a{bare}, a), {attribute}
  {line}
  ROOT %r = f32[8] add(%a, %b)
}}
"""
SLOTS = {
    "header": "",
    "frame": "",
    "shape": "f32[8]",
    "number": "0",
    "sharding": "{devices=[8]<=[8]}",
    "opcode": "all-reduce",
    "operands": "%a",
    "groups": "{{0,1,2,3,4,5,6,7}}",
    "metadata": "stack_frame_id=1",
    "bare": "",
    "attribute": "x=1",
    "line": "%d = f32[8] add(%a, %a)",
}
OF_MODULES = (
    *"{}[]()=\",'%#\\ ,a9_.-\n",
    *('\\"', "a=", '="', '"', "#1", "/*", "*/", "{0},", "%a, ", "f32[8], ", "a=1, ", 'a="', "({", "9" * 40, "T(8)"),
    *("\n  %e = f32[8] add(%a, %a)", "\n}\n%f () -> f32[] {", "metadata={", "<=[8]"),
)


def module(slot: str, piece: str, often: int) -> Pieces:
    before, behind = MODULE.format(**SLOTS | {slot: "\0" + SLOTS[slot]}).split("\0")
    return [(before, 1), (piece, often), (behind, 1)]


def test_a_module_of_any_length_takes_time_in_proportion_to_it(attacked):
    assert not wrong(attacked("module", module("header", "", 1)))
    found = [
        (slot, piece, why)
        for slot in SLOTS
        for piece in OF_MODULES
        if (why := wrong(attacked("module", module(slot, piece, 60_000 // len(piece)))))
    ]
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize(
    "role", ["call(%p), to_apply", "fusion(%p), kind=kLoop, calls", "map(%p), dimensions={{0}}, to_apply"]
)
def test_computations_may_call_each_other_as_deeply_as_they_like(attacked, role):
    inner = "%c{} (p: f32[8]) -> f32[8] {{\n  %p = f32[8] parameter(0)\n  ROOT %x = f32[8] " + role + "=%c{}\n}}\n"
    first = "HloModule f\n%c0 (p: f32[8]) -> f32[8] {\n  ROOT %p = f32[8] parameter(0)\n}\n"
    for depth in (50, 2_000):
        call = f"ROOT %x = f32[8] call(%p), to_apply=%c{depth}"
        last = f"ENTRY %main (p: f32[8]) -> f32[8] {{\n  %p = f32[8] parameter(0)\n  {call}\n}}"
        pieces = [(first, 1), *((inner.format(i, i - 1), 1) for i in range(1, depth + 1)), (last, 1)]
        assert not wrong(attacked("module", pieces))


def test_the_law_can_fail(attacked):
    """An expression that backtracks, a list that swells and a call that is too deep are each found out."""
    assert wrong(attacked("backtracking", [("a", 20)])) == ""
    assert wrong(attacked("backtracking", [("a", 60)])) == "hangs or dies"
    assert wrong(attacked("swelling", [("a", 1)])) == ""
    assert wrong(attacked("swelling", [("a", 40)])) == "MemoryError"
    assert wrong(attacked("recursive", [("a", 10)])) == ""
    assert wrong(attacked("recursive", [("a", 10_000)])) == "RecursionError"

"""The reader of HLO text against jaxlib's own, and against lines that are hard to read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardviz.compiler import HloShape, parse, parse_shape
from shardviz.errors import ParseError

ENUM = {
    "exponential": "exp", "sine": "sin", "cosine": "cos", "exponential-minus-one": "expm1",
    "log-plus-one": "log1p", "opt-barrier": "optimizationbarrier",
}  # fmt: skip
"""Opcodes that jaxlib's enumeration calls otherwise."""


def test_same_instructions_as_jaxlib(compiled, stage):
    module = getattr(compiled, stage)
    theirs = compiled.facts["walked"][stage]["rows"]
    ours = {(c.name, i.name): i for c, i in module}
    rows = {(c, name): (opcode, shape) for c, name, opcode, shape in theirs}
    assert len(rows) == len(theirs)
    extra = set(rows) - set(ours)  # jaxlib writes `%loop#2` out as an instruction of its own
    assert set(ours) <= set(rows)
    parts = {
        (c.name, operand, part)
        for c, i in module
        for operand, part in zip(i.operands, i.operand_parts, strict=True)
        if part
    }
    assert len(extra) <= len(parts)
    assert bool(extra) == bool(parts)
    for key, instruction in ours.items():
        opcode, shape = rows[key]
        if opcode is not None:
            assert ENUM.get(instruction.opcode, instruction.opcode.replace("-", "")) == opcode
        if shape is not None:
            assert instruction.shape == parse_shape(shape)


def test_operands_are_instructions_of_the_same_computation(compiled, stage):
    for computation, instruction in getattr(compiled, stage):
        assert set(instruction.operands) <= set(computation.by_name)
        for names in instruction.called.values():
            assert set(names) <= set(getattr(compiled, stage).computations)


def test_num_partitions(compiled):
    assert compiled.before.num_partitions == compiled.mesh.size


HEAD = "HloModule m, num_partitions=4\n\n"


def one(line: str, body: str = ""):
    return parse(f"{HEAD}ENTRY %main () -> f32[] {{\n{body}  ROOT {line}\n}}\n").entry.root


def test_strings_with_braces_quotes_and_commas():
    found = one(
        r'%x = f32[] custom-call(), custom_call_target="a, b={\"}", backend_config={"k":"v}, w=1"}, '
        r'metadata={op_name="p[\'w, {1}\']/a=\"b\"" stack_frame_id=7 source_file="/a b/c.py" source_line=3}'
    )
    assert found.attributes["custom_call_target"] == r'"a, b={\"}"'
    assert set(found.attributes) == {"custom_call_target", "backend_config", "metadata"}
    assert found.op_name == "p['w, {1}']/a=\"b\""
    assert (found.stack_frame_id, found.metadata["source_file"], found.metadata["source_line"]) == (7, "/a b/c.py", "3")


def test_names_beyond_ascii():
    assert one(r'%x = f32[] custom-call(), metadata={op_name="p[\'\316\262\']"}').op_name == "p['β']"


def test_tuples_layouts_and_comments():
    found = one(
        "%x = (f32[8,4]{1,0:T(8,128)(2,1)}, (s32[], /*index=1*/u8[<=3]{0:T(4)S(1)})) while((f32[8]{0}, s32[]) %a, "
        "/*index=1*/pred[] %b#1#0), condition=%c, body=%d"
    )
    assert found.shape == (HloShape("float32", (8, 4)), (HloShape("int32", ()), HloShape("uint8", (3,))))
    assert found.opcode == "while"
    assert found.operands == ("a", "b")
    assert found.operand_parts == ((), (1, 0))
    assert found.called == {"condition": ("c",), "body": ("d",)}


def test_names_without_percent_signs():
    assert one("x = f32[2]{0} add(a.1, b-2)").operands == ("a.1", "b-2")
    assert one("x = f32[2]{0} add(f32[2,1]{1,0} a.1, f32[] b#3)").operands == ("a.1", "b")
    assert one("x = f32[2]{0} add(a, /*index=1*/b)").operands == ("a", "b")


def test_constants_have_no_operands():
    assert one("%x = s32[2,2]{1,0} constant({ { 1, 2 }, { 3, 4 } })").operands == ()
    assert one("%x = c64[] constant((1, -2.5))").operands_text == "(1, -2.5)"
    assert one("%x = f32[] parameter(12)").parameter_number == 12


def test_groups_with_a_device_list_are_one_attribute():
    text = "mesh['axis_0'=4,'axis_1'=2], device_ids=([2,2,2]T(0,2,1)) {'axis_0':(2)2}"
    found = one(f"%x = f32[] all-reduce(%a), channel_id=1, replica_groups={text}, use_global_device_ids=true")
    assert found.attributes["replica_groups"] == text
    assert found.attributes["use_global_device_ids"] == "true"


@pytest.mark.parametrize(
    ("hlo", "numpy"),
    [
        ("pred", "bool"), ("s4", "int4"), ("u64", "uint64"), ("bf16", "bfloat16"), ("f8e4m3fn", "float8_e4m3fn"),
        ("f8e5m2fnuz", "float8_e5m2fnuz"), ("f4e2m1fn", "float4_e2m1fn"), ("c128", "complex128"), ("token", "token"),
    ],
)  # fmt: skip
def test_element_types_have_numpys_names(hlo, numpy):
    assert parse_shape(f"{hlo}[3]") == HloShape(numpy, (3,))


def test_element_types_are_those_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for hlo, size in (("f8e4m3fn", 1), ("f8e5m2", 1), ("f8e3m4", 1), ("bf16", 2), ("f8e8m0fnu", 1)):
        shape = parse_shape(f"{hlo}[16]{{0}}")
        assert isinstance(shape, HloShape)
        assert hasattr(ml_dtypes, shape.dtype)
        assert shape.nbytes == 16 * size


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "no line begins with 'HloModule'"),
        (HEAD, "no ENTRY computation"),
        (f"{HEAD}ENTRY %main () -> f32[] {{\n  %x = f32[] constant(1)\n", "'main' does not end"),
        (f"{HEAD}ENTRY %main () -> f32[] {{\n  rubbish\n}}\n", "HLO line 4: expected an instruction .* 'rubbish'"),
        (f"{HEAD}ENTRY %main () -> f32[] {{\n  %x = f32[] add(%a\n}}\n", "the operands do not end"),
        (f"{HEAD}  %x = f32[] constant(1)\n", "an instruction outside of a computation"),
    ],
)
def test_what_cannot_be_read_is_shown(text, message):
    with pytest.raises(ParseError, match=message):
        parse(text)


def test_a_bad_shape_is_shown():
    with pytest.raises(ParseError, match=r"HLO shape 'f32\[8': expected a shape"):
        parse_shape("f32[8")


@given(st.data())
def test_a_text_cut_short_is_refused(all_compiled, data):
    text = all_compiled["while_down"].text("after").rstrip()
    end = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(ParseError):
        parse(text[:end])


@given(st.data())
def test_damaged_text_raises_nothing_else(all_compiled, data):
    """A character more or less: it is read, or refused by name, and never breaks the reader."""
    text = all_compiled["shard_map"].text("before")
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.sampled_from(["", "{", "}", "(", ")", '"', ",", "%", "x", "]"])) + text[at + 1 :]
    try:
        module = parse(damaged)
        for _, instruction in module:
            assert instruction.shape is not None
            assert instruction.operands is not None
            assert instruction.attributes is not None
            assert instruction.op_name is not None
        assert module.frames is not None
    except ParseError:
        pass


@pytest.mark.parametrize("value", ['{\n"a":"{\\"b\\": 1}"\n}', "{\n}", '{\n"a":[\n1,\n2]}', '"x\\"{"'])
def test_an_attribute_may_go_over_several_lines(value):
    """Pallas writes a kernel's metadata so; the line that closes it begins as the end of a computation does."""
    text = (
        "HloModule m\n\nENTRY %main (a: f32[4]) -> f32[4] {\n  %a = f32[4]{0} parameter(0)\n"
        f"  %k = f32[4]{{0}} custom-call(%a), frontend_attributes={{kernel_metadata={value}}}, "
        'metadata={op_name="k"}\n  ROOT %b = f32[4]{0} negate(%k)\n}\n\n'
    )
    module = parse(text)
    kernel = module.entry.by_name["k"]
    assert [i.name for i in module.entry.instructions] == ["a", "k", "b"]
    assert kernel.attributes["frontend_attributes"] == f"{{kernel_metadata={value}}}"
    assert kernel.op_name == "k"
    for cut in range(text.index("ROOT"), len(text) - 3):
        with pytest.raises(ParseError):
            parse(text[:cut])

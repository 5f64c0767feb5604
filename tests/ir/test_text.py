"""The text form of programs: its syntax, its meaning, and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc.errors import TextError
from graphc.ir.compare import difference
from graphc.ir.dims import symbol
from graphc.ir.dtypes import BY_SHORT
from graphc.ir.node import Node, Tensor
from graphc.ir.parse import parse_program
from graphc.ir.program import Port, Program
from graphc.ir.source import Source
from graphc.ir.text import print_program
from graphc.ir.types import TensorType
from graphc.ir.values import array_of_bytes, same_value
from tests.ir.catalogue import CATALOGUE

MLP = """\
program mlp(x: f32[batch, 784], hidden/kernel: state f32[784, 512], y: i32[batch]) {
  size 2*batch == t + 1
  batch_axis x=0, y=0
  %0 = MatMul(x, hidden/kernel)                   : f32[batch, 512]
  %1 = Softmax(%0) {axis=1}                       : f32[batch, 512]
  %2, %3 = Split(hidden/kernel) {sizes=[700, 84]} : f32[700, 512], f32[84, 512]
  %4 = Scan(%2, %3) {length=3}                    : f32[700, 512] with body(a0: f32[700, 512], a1: f32[84, 512]) {
    %0 = Relu(a0) : f32[700, 512]
    return r0 = %0
  }
  Print(%4)
  return loss = %1, state hidden/kernel = hidden/kernel
}"""  # noqa: E501


def parse(text: str, **options: Any) -> Program:
    return parse_program(text, CATALOGUE, **options)


def test_a_program_prints_as_it_was_written() -> None:
    program = parse(MLP)
    assert str(program) == MLP
    assert [p.kind for p in program.inputs] == ["feed", "state", "feed"]
    assert [p.kind for p in program.outputs] == ["fetch", "state"]
    assert program.equalities == ((2 * symbol("batch"), symbol("t") + 1),)
    assert program.batch_axes == {"x": 0, "y": 0}
    assert program.nodes[1].attrs == {"axis": 1}
    (body,) = program.nodes[3].regions
    assert body.inputs[0].kind == "arg" and body.outputs[0].kind == "result"
    assert body.outputs[0].tensor is body.nodes[0].outputs[0]
    assert program.nodes[4].outputs == ()
    assert str(body) == (
        "program body(a0: arg f32[700, 512], a1: arg f32[84, 512]) {\n"
        "  %0 = Relu(a0) : f32[700, 512]\n"
        "  return result r0 = %0\n"
        "}"
    )


def test_blanks_comments_and_names_of_tensors_are_free() -> None:
    loose = """
        # a comment
        program mlp(
          x: f32[ 2 ],  # the feed
          y as %b: f32[2]
        ) {
          %sum = Add(x,
                     %b):f32[2]  # "no string"
          return z=%sum
        }
    """
    assert difference(parse(loose), parse(str(parse(loose)))) is None
    assert "%0 = Add(x, y) : f32[2]" in str(parse(loose))


def test_names_devices_and_control_inputs_are_printed_on_request() -> None:
    x = Tensor(TensorType(BY_SHORT["f32"], ()), "x")
    y = Tensor(x.type, "a/Relu:0")
    node = Node(
        CATALOGUE["Relu"], (x,), (y,), name="a/Relu", source=Source("/home/me/train.py", 12),
        device="/job:worker/device:GPU:0", control_inputs=("init", "two words"),
    )  # fmt: skip
    program = Program("p", (Port("x", "feed", x),), (node,), (Port("y", "fetch", y),))
    text = print_program(program, names=True)
    assert text.splitlines()[1] == (
        '  %0 = Relu(x) : f32[] as a/Relu on /job:worker/device:GPU:0 after init, "two words"'
        "  # train.py:12"
    )
    again = parse(text).nodes[0]
    assert (again.name, again.device) == (node.name, node.device)
    assert again.control_inputs == node.control_inputs
    assert again.outputs[0].name == "a/Relu:0"
    assert str(program).splitlines()[1] == "  %0 = Relu(x) : f32[]  # train.py:12"
    assert "train.py" not in print_program(program, sources=False)


def test_parsed_nodes_can_point_at_the_text() -> None:
    program = parse(MLP, source_file="/tests/mlp.txt")
    assert [str(node.source) for node in program.walk()] == [
        "mlp.txt:4", "mlp.txt:5", "mlp.txt:6", "mlp.txt:7", "mlp.txt:8", "mlp.txt:11",
    ]  # fmt: skip
    assert all(node.source is None for node in parse(MLP).walk())


def test_long_headers_and_returns_are_broken_into_lines() -> None:
    names = [f"a_rather_long_name_{i}" for i in range(8)]
    ports = ", ".join(f"{name}: f32[]" for name in names)
    text = f"program p({ports}) {{\n return {', '.join(f'{n} = {n}' for n in names)} }}"
    printed = str(parse(text))
    assert max(map(len, printed.splitlines())) < 100
    assert difference(parse(text), parse(printed)) is None


def test_inputs_of_one_name_get_an_alias() -> None:
    x, w = (Tensor(TensorType(BY_SHORT["f32"], (n,)), "x") for n in (2, 3))
    ports = (Port("x", "feed", x), Port("x", "state", w))
    program = Program("p", ports, (), (Port("o", "fetch", w),))
    assert str(program) == ("program p(x: f32[2], x as %in1: state f32[3]) {\n  return o = %in1\n}")
    assert difference(program, parse(str(program))) is None


def test_a_faulty_program_can_still_be_printed() -> None:
    stray = Tensor(TensorType(BY_SHORT["f32"], ()), "stray")
    node = Node(CATALOGUE["Relu"], (stray,), (Tensor(stray.type),), {"extra": 1})
    program = Program("p", (), (node,), (Port("o", "fetch", Tensor(stray.type)),))
    assert "%0 = Relu(%undefined) {extra=1} : f32[]" in str(program)
    assert "return o = %undefined" in str(program)


# -- attributes ---------------------------------------------------------------------------------

N = symbol("n")
ATTRS = [
    ("i", -3, "-3"),
    ("i", 10**30, str(10**30)),
    ("f", 1.5, "1.5"),
    ("f", 1, "1"),
    ("f", -1e-30, "-1e-30"),
    ("f", -0.0, "-0.0"),
    ("f", float("inf"), "inf"),
    ("f", float("-inf"), "-inf"),
    ("f", float("nan"), "nan"),
    ("b", True, "true"),
    ("s", 'a "b"\n\\ é \ud800', r'"a \"b\"\n\\ \u00e9 \ud800"'),
    ("n", 4, "4"),
    ("n", 2 * N - 1, "2*n - 1"),
    ("n", (N - 1) // 2, "floordiv(n - 1, 2)"),
    ("n", symbol("none"), "(none)"),
    ("ints", (1,), "[1]"),
    ("ints", (-1, 2), "[-1, 2]"),
    ("dims", (N, 3, N * N), "[n, 3, n*n]"),
    ("pairs", ((0, N), ()), "[[0, n], []]"),
    ("a", np.array([[1.5, -0.0]], np.float32), "f32[1, 2] [[1.5, -0.0]]"),
    ("a", np.array([0.1], np.float32), "f32[1] [0.1]"),
    ("a", np.array(7, np.int8), "i8[] 7"),
    ("a", np.array([True, False]), "bool[2] [true, false]"),
    ("a", np.array([1 - 2j], np.complex64), "c64[1] [(1.0, -2.0)]"),
    ("a", np.zeros((0, 2), np.float16), "f16[0, 2] []"),
    ("a", np.arange(65, dtype=np.uint8), 'u8[65] "AAECAw'),
    ("a", np.array([2**64 - 1], np.uint64), "u64[1] [18446744073709551615]"),
    # An unusual NaN keeps its bits.
    ("a", array_of_bytes(b"\x01\x00\xc0\x7f", BY_SHORT["f32"], ()), 'f32[] "AQDAfw=="'),
    ("m", {}, "{}"),
    (
        "m",
        {"axis": 1, "b c": (None, True, "s", 1.0, float("inf"), 1j)},
        '{axis=1, "b c"=[none, true, "s", 1.0, float(inf), complex(0.0, 1.0)]}',
    ),
    (
        "m",
        {"d": BY_SHORT["bf16"], "n": (N, 3), "of": {"a": np.array([1], np.int32)}},
        "{d=dtype(bf16), n=[dim(n), 3], of={a=i32[1] [1]}}",
    ),
    *[("d", dtype, short) for short, dtype in BY_SHORT.items()],
]


@pytest.mark.parametrize(("name", "value", "written"), ATTRS, ids=lambda v: str(v)[:20])
def test_attributes_of_every_kind(name: str, value: Any, written: str) -> None:
    x = Tensor(TensorType(BY_SHORT["f32"], ()), "x")
    op = CATALOGUE["Everything"]
    node = Node(op, (x,), (Tensor(x.type),), op.complete({name: value}))
    program = Program("p", (Port("x", "feed", x),), (node,), ())
    text = str(program)
    assert f"Everything(x) {{{name}={written}" in text
    again = parse(text).nodes[0].attrs
    assert same_value(again[name], value)
    assert same_value({**again, name: None}, {**node.attrs, name: None})  # defaults are kept


@pytest.mark.parametrize("short", BY_SHORT)
def test_arrays_of_every_dtype(short: str) -> None:
    dtype = BY_SHORT[short]
    values = [0, 1, 1, 0] if short == "bool" else [0, 1, 3, 7]
    small = np.array(values).astype(dtype).reshape(2, 2)
    large = np.tile(small, (5, 5))
    for value in (small, large, small[:1, 1:].reshape(())):
        op = CATALOGUE["Constant"]
        type = TensorType(dtype, value.shape)
        program = Program("p", (), (Node(op, (), (Tensor(type),), {"value": value}),), ())
        again = parse(str(program)).nodes[0]
        assert same_value(again.attrs["value"], value)
        assert again.outputs[0].type == type
    elided = print_program(program.replace(nodes=(_constant(large),)), elide=True)
    assert f"{{value={short}[10, 10] ...}}" in elided
    with pytest.raises(TextError, match=r"(?s)line 2: the elements .* were left out.*elide"):
        parse(elided)


def _constant(value: np.ndarray[Any, Any]) -> Node:
    type = TensorType(value.dtype, value.shape)
    return Node(CATALOGUE["Constant"], (), (Tensor(type),), {"value": value})


def test_what_has_no_written_form_is_refused() -> None:
    op = CATALOGUE["Everything"]
    x = Tensor(TensorType(BY_SHORT["f32"], ()), "x")
    for value, message in [
        (object(), "a value of type object cannot be written"),
        (np.array(["a"]), "dtype <U1 is not one of graphc's"),
        ({1: 2}, "a key of a mapping must be a string"),
    ]:
        node = Node(op, (x,), (Tensor(x.type),), op.complete({"m": {"key": value}}))
        program = Program("p", (Port("x", "feed", x),), (node,), ())
        with pytest.raises(TextError, match=message):
            str(program)


# -- invalid text -------------------------------------------------------------------------------


def body(*lines: str) -> str:
    inside = "\n".join(f"  {line}" for line in lines)
    return f"program p(x: f32[2, n]) {{\n{inside}\n  return y = x\n}}"


BAD = [
    ("", r"line 1: expected 'program', got the end of the text"),
    ("graph g(seed=0) {", r"line 1: expected 'program', got 'graph'"),
    (
        "program p(x: f32[2]) {",
        r"line 1: expected a node, or `return` and the outputs, got the end",
    ),
    ("program p() {\n}", r"line 2: expected a node, or `return` and the outputs, got '}'"),
    ("program p() {\n return\n}\nmore", r"line 4: expected the end of the text, got 'more'"),
    ("program p(x f32[2]) {\n return\n}", r"line 1: expected ':', got 'f32'"),
    ("program p(x: f32[2], x: f32[2]) {\n return\n}", r"line 1: x is defined twice"),
    ("program p(x: stat f32[2]) {\n return\n}", r"no kind of input 'stat'.*did you mean 'state'"),
    ("program p(x: float32[2]) {\n return\n}", r"no dtype 'float32'"),
    ("program p(x: f32) {\n return\n}", r"expected a type such as f32\[batch, 784\]|kind of input"),
    ("program p(x: f32[-2]) {\n return\n}", r"line 1: a dim is negative"),
    ("program p(x: f32[n +]) {\n return\n}", r"line 1: 'n \+' is not a list of dims"),
    ("program p(x: f32[n) {\n return\n}", r"line 1: expected '\]', got '\)'"),
    ("program p(x: f32[]) { return y = x }", r"line 1: expected a new line, got 'return'"),
    ("program p(x: f32[]) {\n return fetched y = x }", r"no kind of output 'fetched'"),
    (body("%0 = Rleu(x) : f32[2, n]"), r"line 2: no operator 'Rleu'.*did you mean 'Relu'"),
    (body("%0 = Relu(%7) : f32[2, n]"), r"line 2: %7 is not defined here.*defined last: x"),
    (body("%0 = Relu(z) : f32[2, n]"), r"line 2: z is not defined here"),
    (body("%0 = Relu(x) : f32[2, n]", "%0 = Relu(x) : f32[2, n]"), r"line 3: %0 is defined twice"),
    (body("%0 = Relu(x)"), r"line 3: expected ':', got 'return'"),
    (body("%0 = Relu(x) : f32[2], f32[2]"), r"line 2: 1 results but 2 types"),
    (body("%0 = Relu(x) : f32[2] junk"), r"line 2: expected the end of the line, got 'junk'"),
    (body("%0 = Relu(x : f32[2]"), r"line 2: expected ',' or '\)', got ':'"),
    (body("%0 = Softmax(x) {axes=1} : f32[2]"), r"no attribute of Softmax 'axes'.*mean 'axis'"),
    (body("%0 = Softmax(x) {axis=1.5} : f32[2]"), r"line 2: expected an integer, got '1.5'"),
    (body("%0 = Softmax(x) {axis=1, axis=2} : f32[2]"), r"line 2: axis occurs twice"),
    (body("%0 = Split(x) : f32[2]"), r"line 2: Split needs the attribute 'sizes'"),
    (body("%0 = Split(x) {sizes=[0]} : f32[2]"), r"line 2: Split: sizes must be positive"),
    (body("%0 = MatMul(x, x) {transpose_b=1} : f32[2]"), r"expected true or false, got '1'"),
    (body("%0 = Constant() {value=f32[n] [1.0]} : f32[]"), r"an array has no named sizes"),
    (body("%0 = Constant() {value=f32[2] [1.0]} : f32[]"), r"2 elements, as f32\[2\] has here"),
    (body("%0 = Constant() {value=f32[1] [1.0, 2.0]} : f32[]"), r"1 elements, as f32\[1\] has"),
    (body("%0 = Constant() {value=i8[] 128} : i8[]"), r"an element of i8\[\] is not -128 to 127"),
    (body("%0 = Constant() {value=u4[] 16} : u4[]"), r"an element of u4\[\] is not 0 to 15"),
    (body("%0 = Constant() {value=i8[] 1.0} : i8[]"), r"an element of i8\[\] is not -128"),
    (body("%0 = Constant() {value=f16[] 1e9} : f16[]"), r"not a number that float16 holds"),
    (body(f"%0 = Constant() {{value=f32[] 1{'0' * 400}}} : f32[]"), r"a number that float32 holds"),
    (body(f"%0 = Everything(x) {{i={'1' * 5000}}} : f32[]"), r"the number is too long"),
    (body("%0 = Constant() {value=bool[] 1} : bool[]"), r"expected true or false, got '1'"),
    (body('%0 = Constant() {value=f32[1] "AAA"} : f32[]'), r"line 2: not base64"),
    (body('%0 = Constant() {value=f32[1] "AAAA"} : f32[]'), r"f32\[1\] needs 4 bytes, got 3"),
    (body('%0 = Constant() {value=bool[1] "Ag=="} : f32[]'), r"bool\[1\] needs bytes of bool"),
    (body('%0 = Everything(x) {s="\\q"} : f32[]'), r"line 2: not a string"),
    (body("%0 = Everything(x) {n=} : f32[]"), r"line 2: expected|'' is not a dim"),
    (body("%0 = Everything(x) {n=2 **} : f32[]"), r"line 2: '2 \*\*' is not a dim"),
    (body("%0 = Everything(x) {n=floordiv(n, 0)} : f32[]"), r"is not a dim.*must be positive"),
    (body("%0 = Everything(x) {m={a=1, a=2}} : f32[]"), r"'a' occurs twice"),
    (body("%0 = Everything(x) {m={a=what(1)}} : f32[]"), r"no kind of value 'what'"),
    (body("%0 = Everything(x) {m={a=what}} : f32[]"), r"expected a value: a number"),
    (body(f"%0 = Everything(x) {{m={{a={'[' * 99}"), r"nested more than 50 levels deep"),
    (body("size n = m"), r"line 2: expected '==', got '='|expected '=='"),
    (body("size n =="), r"line 2|line 3"),
    (body("batch_axis x=zero"), r"line 2: expected an integer, got 'zero'"),
    (body("%0 = Relu(x) : f32[2] with b(x: f32[2]) {", "}"), r"line 3: expected a node, or `ret"),
    (body("%0 = Relu(x) : f32[2] with b() {", "return y = x", "}"), r"line 3: x is not defined"),
    (body("§"), r"line 2: expected a token of the text form, got '§'"),
    (body('%0 = Everything(x) {s="open} : f32[]'), r"line 2: expected a token of the text form"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[m[:30] for _, m in BAD])
def test_bad_text_names_the_line_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(TextError, match=f"(?s){message}") as caught:
        parse(text)
    assert str(caught.value).startswith("line ")
    line = int(str(caught.value).split(":")[0].removeprefix("line "))
    assert text.split("\n")[line - 1].strip()[:40] in str(caught.value)


def test_an_error_names_the_file_the_text_is_from() -> None:
    with pytest.raises(TextError, match=r"(?s)line 2.*\n  at mlp.txt:2"):
        parse(body("%0 = Nothing(x) : f32[]"), source_file="/some/mlp.txt")


@pytest.mark.parametrize("seed", range(4))
def test_mutated_text_parses_or_gives_a_text_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pieces = [*'()[]{}%,:="#-*. \n', "%0", "with", "f32", "return", "9" * 30, "body", "..."]
    for _ in range(300):
        text = MLP
        for _ in range(rng.integers(1, 4)):
            at, cut = rng.integers(len(text)), rng.integers(0, 6)
            text = text[:at] + str(rng.choice(pieces)) + text[at + cut :]
        try:
            parse(text)
        except TextError as error:
            assert str(error).startswith("line ")

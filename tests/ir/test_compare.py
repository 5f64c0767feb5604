"""Comparison and fingerprints: which differences count, and how they are described."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from graphc.errors import AttributeValueError, VerifyError
from graphc.ir.compare import difference, same
from graphc.ir.fingerprint import cache_key, fingerprint
from graphc.ir.parse import parse_program
from graphc.ir.program import Program
from graphc.ir.rewrite import clone
from tests.ir.catalogue import CATALOGUE

BASE = """program p(x: f32[n, 4], y: f32[n, 4], w: state f32[4, 3]) {
  size n == 2*m
  batch_axis x=0
  %0 = Add(x, y) : f32[n, 4] as first on /device:GPU:0 after init
  %1 = MatMul(%0, w) : f32[n, 3]
  %2 = Everything(%1) {f=0.5, n=2*n, d=f16, m={k=1}} : f32[n, 3]
  %3 = Constant() {value=f32[2] [0.0, 1.0]} : f32[2]
  %4 = Scan(%3) {length=2} : f32[2] with body(u: f32[2]) {
    %0 = Relu(u) : f32[2]
    return r = %0
  }
  return loss = %2, state w = w, k = %4
}"""


def parse(text: str) -> Program:
    return parse_program(text, CATALOGUE, source_file="p.txt")


MEANINGLESS = [
    ("program p(", "program another("),
    ("as first", "as second"),
    ("after init", "after other"),
    ("with body(", "with inside("),
    ("size n == 2*m", "size 2*m == n"),
    ("  %3", "\n\n  # a comment moves the lines\n  %3"),
]

MEANINGFUL = [
    ("x: f32[n, 4], y", "z as %x: f32[n, 4], y", "input 0 differs", "feed x: f32[n, 4]"),
    ("w: state", "w: feed", "input 2 differs", "state w: f32[4, 3]"),
    ("y: f32[n, 4]", "y: f32[m, 4]", "input 1 differs", "feed y: f32[m, 4]"),
    (", w: state f32[4, 3])", ", w: state f32[4, 3], v: f32[])", "input 3 differs", "nothing"),
    ("Add(x, y)", "Add(y, x)", "node 0: operand x is another tensor", "%0 = Add(y, x)"),
    ("%1 = MatMul(%0, w)", "%1 = Concatenate(%0, w) {axis=0}", "node 1: MatMul against Conc", ""),
    ("MatMul(%0, w)", "MatMul(%0)", "node 1: 2 operands against 1", "%1 = MatMul(%0)"),
    (" : f32[n, 3]", " : f16[n, 3]", "node 1: result types differ", "f16[n, 3]"),
    ("f=0.5", "f=0.25", "node 2: attribute 'f' differs", "f=0.25"),
    ("f=0.5, ", "", "node 2: attribute 'f' differs", "f=0.5"),
    ("n=2*n", "n=n", "node 2: attribute 'n' differs", "n=n"),
    ("d=f16", "d=bf16", "node 2: attribute 'd' differs", "d=bf16"),
    ("m={k=1}", "m={k=1.0}", "node 2: attribute 'm' differs", "m={k=1.0}"),
    ("m={k=1}", "m={k=true}", "node 2: attribute 'm' differs", "m={k=true}"),
    ("[0.0, 1.0]", "[-0.0, 1.0]", "node 3: attribute 'value' differs", "[-0.0, 1.0]"),
    ("value=f32[2]", "value=f16[2]", "node 3: attribute 'value' differs", "f16[2] [0.0, 1.0]"),
    ("GPU:0", "GPU:1", "node 0: device '/device:GPU:0' against '/device:GPU:1'", ""),
    ("length=2", "length=3", "node 4: attribute 'length' differs", "length=3"),
    ("= Relu(u)", "= Softmax(u)", "node 4 (Scan), region 0: node 0: Relu against Soft", "Relu(u)"),
    ("r = %0", "r = u", "node 4 (Scan), region 0: output 'r' is another tensor", "u"),
    ("loss = %2", "cost = %2", "output 0 differs", "fetch cost: f32[n, 3]"),
    ("loss = %2", "loss = %1", "output 'loss' is another tensor", "%1"),
    ("state w = w", "state w = w, j = %3", "output 2 differs", "fetch j: f32[2]"),
    ("  return loss", "  Print(%0)\n  return loss", "5 nodes against 6", "Print(%0)"),
    ("size n == 2*m", "size n == 3*m", "equalities differ", "3*m == n"),
    ("x=0", "x=1", "batch axes differ", "{'x': 1}"),
]  # fmt: skip


def changed(old: str, new: str) -> Program:
    text = BASE.replace(old, new, 1)
    assert text != BASE
    if "as %x" in new:
        text = text.replace("Add(x,", "Add(%x,")
    return parse(text)


@pytest.mark.parametrize(("old", "new"), MEANINGLESS)
def test_what_does_not_count(old: str, new: str) -> None:
    assert difference(parse(BASE), changed(old, new)) is None
    assert fingerprint(parse(BASE)) == fingerprint(changed(old, new))


@pytest.mark.parametrize(("old", "new", "message", "shown"), MEANINGFUL, ids=lambda v: str(v)[:24])
def test_what_counts(old: str, new: str, message: str, shown: str) -> None:
    base, other = parse(BASE), changed(old, new)
    assert not same(base, other) and not same(other, base)
    text = difference(base, other)
    assert text is not None and text.startswith(message), text
    assert "\n  left:  " in text and "\n  right: " in text and shown in text, text
    assert fingerprint(base) != fingerprint(other)


def test_a_difference_shows_the_lines_of_both_sides() -> None:
    assert difference(parse(BASE), changed("f=0.5, ", "f=2.0, ")) == (
        "node 2: attribute 'f' differs\n"
        "  left:  %2 = Everything(%1) {f=0.5, d=f16, n=2*n, m={k=1}} : f32[n, 3]  # p.txt:6\n"
        "  right: %2 = Everything(%1) {f=2.0, d=f16, n=2*n, m={k=1}} : f32[n, 3]  # p.txt:6"
    )


def test_operands_of_a_variadic_operator_are_kept_apart() -> None:
    texts = [
        "program p(x: f32[1], y: f32[1]) {\n"
        f"%0 = Concatenate({xs}) {{axis=0}} : f32[2]\nreturn\n}}"
        for xs in ("x, y", "y, x", "x, x")
    ]
    assert len({fingerprint(parse(text)) for text in texts}) == 3
    assert "operand xs[0]" in str(difference(parse(texts[0]), parse(texts[1])))


def test_every_single_change_gives_another_fingerprint() -> None:
    prints = {fingerprint(changed(old, new)) for old, new, _, _ in MEANINGFUL}
    assert len(prints) == len(MEANINGFUL)


GOLDEN = "76f6ff1940a37f944c535a5eae6a729a9c24796b870a4ecf1210da32ec609208"


def test_fingerprints_are_stable_across_versions() -> None:
    # Another value would empty the caches of all users: then increase the recipe's number. (This
    # also tests that it does not depend on the process: string hashes differ in each.)
    assert fingerprint(parse(BASE)) == GOLDEN
    assert fingerprint(clone(parse(BASE))) == GOLDEN


def test_a_program_out_of_order_has_no_fingerprint() -> None:
    program = parse(BASE)
    with pytest.raises(VerifyError, match="p: '%1' is used before it is defined"):
        fingerprint(program.replace(nodes=program.nodes[::-1][1:]))


# -- cache keys ---------------------------------------------------------------------------------


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Inner:
    level: Level = Level.LOW


@dataclass(frozen=True)
class Options:
    rate: float = 1.0
    passes: tuple[Any, ...] = (Inner(),)
    flags: frozenset[str] = frozenset({"a", "b"})


@dataclass(frozen=True)
class Other(Options):
    pass


def key(text: str = BASE, **changes: Any) -> str | None:
    given: dict[str, Any] = {
        "bindings": {"n": 4, "m": 2},
        "options": Options(),
        "extra": {"a": "1"},
    }
    return cache_key(parse(text), **{**given, **changes})


def test_everything_that_decides_the_executable_enters_its_key() -> None:
    assert key() == key() == key(bindings={"m": 2, "n": 4})
    others = [
        key(BASE.replace("f=0.5", "f=0.25")),
        key(bindings={"n": 4, "m": 3}),
        key(bindings={}),
        key(options=Options(rate=1)),
        key(options=Options(passes=())),
        key(options=Options(passes=(Inner(Level.HIGH),))),
        key(options=Options(flags=frozenset({"a"}))),
        key(options=Other()),
        key(options=None),
        key(extra={"a": "2"}),
        key(extra={"a": "1", "b": ""}),
        key(extra={}),
    ]
    assert len({key(), *others}) == len(others) + 1


def test_a_program_that_calls_back_is_not_cached() -> None:
    assert key("program p(x: f32[]) {\n Print(x)\n return\n}") is None
    inside = BASE.replace("return r", "Print(u)\n return r")
    assert key(inside) is None


@pytest.mark.parametrize("bad", [object(), {"f": lambda: 0}, (np.zeros(2),)])
def test_options_without_a_stable_form_are_refused(bad: Any) -> None:
    with pytest.raises(AttributeValueError, match="cannot enter a cache key"):
        key(options=bad)

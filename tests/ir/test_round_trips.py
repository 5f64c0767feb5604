"""Laws for random programs: a program that is written and read again is unchanged."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings

from graphc.ir.compare import difference
from graphc.ir.fingerprint import fingerprint
from graphc.ir.parse import parse_program
from graphc.ir.program import Program
from graphc.ir.rewrite import bind_sizes, clone, map_dims
from graphc.ir.serial import dump_program, from_bytes, load_program, to_bytes
from graphc.ir.text import print_program
from graphc.ir.verify import verify
from tests.ir.catalogue import CATALOGUE
from tests.ir.strategies import programs

many = settings(
    max_examples=80,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def labels(program: Program) -> list[tuple[object, ...]]:
    return [(n.name, n.device, n.control_inputs) for n in program.walk()]


@many
@given(programs())
def test_text_is_read_back(program: Program) -> None:
    verify(program, "functional")
    text = print_program(program, names=True)
    parsed = parse_program(text, CATALOGUE)
    assert difference(program, parsed) is None
    assert labels(parsed) == labels(program)
    assert print_program(parsed, names=True) == text
    assert fingerprint(parsed) == fingerprint(program)
    assert print_program(program, elide=True)


@many
@given(programs())
def test_serialised_programs_are_read_back(program: Program) -> None:
    manifest, arrays = from_bytes(to_bytes(*dump_program(program)))
    loaded = load_program(manifest, arrays, CATALOGUE)
    assert difference(program, loaded) is None
    assert labels(loaded) == labels(program)
    assert fingerprint(loaded) == fingerprint(program)
    assert json.dumps(dump_program(loaded)[0]) == json.dumps(manifest)


@many
@given(programs())
def test_a_clone_is_the_same_program_of_other_tensors(program: Program) -> None:
    copy = clone(program)
    verify(copy, "functional")
    assert difference(program, copy) is None
    assert fingerprint(copy) == fingerprint(program)
    old = {t for p in (program,) for t in [*p.input_tensors(), *p.producers()]}
    assert not old & {*copy.input_tensors(), *copy.producers()}


@many
@given(programs())
def test_bound_programs_are_valid(program: Program) -> None:
    assert map_dims(program, lambda dim: dim) is program
    bound = bind_sizes(program.replace(equalities=()), {"n": 3, "m": 2, "none": 1})
    verify(bound, "bound")
    assert bind_sizes(bound, {"n": 5}) is bound

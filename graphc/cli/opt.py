"""`graphc opt`: runs passes on the text form of a program."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from graphc.cli.pass_texts import check_name, list_passes, parse_passes
from graphc.config import CompileOptions
from graphc.errors import (
    AttributeValueError,
    GraphcError,
    PassError,
    TextError,
    UnknownNameError,
    nearest,
)
from graphc.ir.compare import difference
from graphc.ir.opdef import Effects
from graphc.ir.parse import parse_program
from graphc.ir.program import Program, attribute_symbols, effects_of
from graphc.ir.rewrite import bind_sizes
from graphc.ir.text import print_program
from graphc.ir.verify import Stage, verify
from graphc.ops.catalogue import CATALOGUE
from graphc.passes.core.base import Pass
from graphc.passes.core.target import Target
from graphc.passes.manager import PassManager, PassRow, watching
from graphc.passes.pipelines import after_binding, on_device, pipeline
from graphc.passes.simplify.functionalize import Functionalize

_STATEFUL = Effects.READ | Effects.WRITE | Effects.RANDOM


class _Phase(NamedTuple):
    """Passes that run together.

    Attributes:
        bound: whether they need all sizes to be ints.
    """

    passes: Sequence[Pass]
    rounds: int = 1
    bound: bool = False


def run(options: argparse.Namespace) -> None:
    """Prints the program after the passes, or prints the list of passes."""
    if options.list:
        print("\n".join(list_passes()))
        return
    if options.file is None:
        raise GraphcError("no file was given", hint="pass a path, or - for standard input")
    phases = _phases(options)
    if options.print_after is not None:
        check_name(options.print_after, [each for phase in phases for each in phase.passes])
    program = _read(options.file)
    if options.verify:
        verify(program, _stage(program))
    with _printing(options.print_after):
        program = _carry_out(program, phases, _sizes(options.size, program), options)
    text = print_program(program, names=True, sources=False)
    if options.round_trip:
        _check_round_trip(program, text)
    print(text)


# -- reading --------------------------------------------------------------------------------


def _read(name: str) -> Program:
    """The program in a file, or in standard input."""
    try:
        if name == "-":
            text = sys.stdin.read()
        else:
            with open(name, encoding="utf-8") as file:
                text = file.read()
    except UnicodeDecodeError as error:
        raise TextError(f"{name} is not text in UTF-8", details=[str(error)]) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise GraphcError(f"{name!r} cannot be read: {reason}", hint="check the path") from error
    if re.match(r"(?:\s|#[^\n]*\n)*graph\b", text):
        raise TextError(
            f"{name} contains a graph, but passes work on programs",
            hint="run graphc inspect SCRIPT --before prune to print the program of a script",
        )
    return parse_program(text, CATALOGUE, source_file="<stdin>" if name == "-" else name)


def _sizes(given: Sequence[tuple[str, int]], program: Program) -> dict[str, int]:
    """The values of named sizes. Each size must occur in the program."""
    known = program.symbols()
    sizes: dict[str, int] = {}
    for name, size in given:
        if sizes.setdefault(name, size) != size:
            raise AttributeValueError(
                f"--size: {name} is {sizes[name]} and {size}", hint="give each size once"
            )
        if name not in known:
            raise UnknownNameError(
                f"--size: the program has no size {name!r}",
                hint=nearest(name, known) or "leave it out: no input has a named size",
            )
    return sizes


# -- passes ---------------------------------------------------------------------------------


def _phases(options: argparse.Namespace) -> list[_Phase]:
    """The requested passes. Each pass of `--passes` is its own phase, because it may come before
    or after the pass that removes effects."""
    target = Target(options.platform)
    if options.pipeline is None:
        return [_Phase([each]) for each in parse_passes(options.passes or "", target)]
    compiling = CompileOptions(pipeline=options.pipeline)
    late = [
        *after_binding(compiling, target),
        *on_device(compiling, options.platform, None),
    ]
    return [
        _Phase([Functionalize()]),
        _Phase(pipeline(compiling), rounds=PassManager.rounds),
        _Phase(late, bound=True),
    ]


def _carry_out(
    program: Program, phases: Sequence[_Phase], sizes: dict[str, int], options: argparse.Namespace
) -> Program:
    """The program after the passes. With `--passes`, sizes are bound first. With a pipeline, they
    are bound at the same point as in `gc.compile`."""
    late = any(phase.bound for phase in phases)
    if sizes and not late:
        program = bind_sizes(program, sizes)
    for phase in phases:
        if phase.bound:
            program = bind_sizes(program, sizes) if sizes else program
            open_sizes = list(dict.fromkeys([*program.symbols(), *attribute_symbols(program)]))
            if open_sizes and phase.passes:
                _say_left_out(phase.passes, open_sizes)
                continue
        program = _run(program, phase, options.verify)
    return program


def _run(program: Program, phase: _Phase, verified: bool) -> Program:
    makes_functional = any(isinstance(each, Functionalize) for each in phase.passes)
    stage: Stage = "functional" if makes_functional else _stage(program)
    if phase.bound and stage == "functional":
        stage = "bound"
    manager = PassManager(phase.passes, verify=verified, stage=stage, rounds=phase.rounds)
    try:
        return manager.run(program)[0]
    except PassError as error:
        if not verified and error.hint is None:
            error.hint = "--verify checks the program before and after each pass"
        raise


def _stage(program: Program) -> Stage:
    stateful = any(effects_of(node) & _STATEFUL for node in program.nodes)
    return "captured" if stateful else "functional"


def _say_left_out(passes: Sequence[Pass], sizes: Sequence[str]) -> None:
    names = ", ".join(dict.fromkeys(each.name for each in passes))
    advice = " ".join(f"--size {size}=N" for size in sizes)
    print(f"not run, because sizes are unknown: {names} (add {advice})", file=sys.stderr)


@contextmanager
def _printing(name: str | None) -> Iterator[None]:
    """Prints the program after the pass `name`. For `all`, prints it after each pass that changed
    it."""

    def show(row: PassRow, before: Program, after: Program) -> None:
        if row.name == name or (name == "all" and after is not before):
            print(f"# after {row.name}, round {row.round}: {row.changed} changes", file=sys.stderr)
            print(print_program(after, names=True, sources=False), file=sys.stderr)

    if name is None:
        yield
        return
    with watching(show):
        yield


def _check_round_trip(program: Program, text: str) -> None:
    try:
        found = difference(program, parse_program(text, CATALOGUE))
    except TextError as error:
        raise TextError(
            "--round-trip: the printed program does not parse",
            details=[error.what, *error.details],
            hint="this is a bug in graphc: please report it with the program",
        ) from error
    if found is not None:
        raise TextError(
            "--round-trip: parsing the printed program gives a different program",
            details=found.splitlines(),
            hint="this is a bug in graphc: please report it with the program",
        )

"""The open sizes in dims, attributes and programs, for `row_proof`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphc.ir.dims import Dim, DimExpr, floor_division, symbol, symbols_of
from graphc.ir.node import Node
from graphc.ir.program import Program


def elements_of(dim: Dim, size: str) -> Dim | None:
    """The factor by which `dim` is a multiple of `size`; None if it is not a multiple."""
    if not isinstance(dim, DimExpr):
        return None
    factor = floor_division(dim, symbol(size))
    return factor if factor * symbol(size) == dim and size not in symbols_of(factor) else None


def names(value: Any, size: str) -> bool:
    """Whether an attribute's value contains the size."""
    if isinstance(value, tuple):
        return any(names(item, size) for item in value)
    if isinstance(value, Mapping):
        return any(names(item, size) for item in value.values())
    return isinstance(value, DimExpr) and size in symbols_of(value)


def mentions(node: Node, size: str) -> bool:
    """Whether the attributes, the results or the regions of a node contain the size."""
    return (
        any(names(value, size) for value in node.attrs.values())
        or any(names(tensor.type.shape, size) for tensor in node.outputs)
        or any(has_size(body, size) for body in node.regions)
    )


def has_size(program: Program, size: str) -> bool:
    """Whether an input or a node of a program contains the size."""
    return any(names(t.type.shape, size) for t in program.input_tensors()) or any(
        mentions(node, size) for node in program.nodes
    )


def _dims(program: Program) -> Iterator[Any]:
    """All dims of a program, in types and attributes, also those inside tuples."""
    pending: list[Any] = [t.type.shape for t in program.input_tensors()]
    for node in program.walk():
        pending += [t.type.shape for t in node.outputs]
        pending += [t.type.shape for body in node.regions for t in body.input_tensors()]
        pending += node.attrs.values()
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            pending += value.values()
        elif isinstance(value, tuple):
            pending += value
        elif isinstance(value, DimExpr) or type(value) is int:
            yield value


def open_sizes(program: Program) -> list[str]:
    """The named sizes in a program, in types and attributes."""
    return sorted({name for dim in _dims(program) for name in symbols_of(dim)})


def largest_number(program: Program) -> int:
    """The largest number in the sizes of a program. A size such as 3*n + 5 has two numbers."""
    largest = 1
    pending = list(_dims(program))
    while pending:
        dim = pending.pop()
        if not isinstance(dim, DimExpr):
            largest = max(largest, abs(dim))
            continue
        for monomial, coefficient in dim.terms:
            largest = max(largest, abs(coefficient))
            pending += [part for atom in monomial if not isinstance(atom, str) for part in atom]
    return largest


def primes_above(least: int) -> Iterator[int]:
    """Prime numbers larger than `least`, each more than twice the one before."""
    number = max(least, 1_000)
    while True:
        number = _next_prime(2 * number)
        yield number


def _next_prime(number: int) -> int:
    candidate = number | 1
    while not _is_prime(candidate):
        candidate += 2
    return candidate


# These bases decide exactly below 3.3e24 (Sorenson and Webster, Math. Comp. 86, 2017). A larger
# number that passes is almost certainly prime, and only has to be rarely divisible.
_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)


def _is_prime(n: int) -> bool:
    """The test of Miller and Rabin."""
    if any(n % p == 0 for p in _BASES):
        return n in _BASES
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in _BASES:
        x = pow(base, odd, n)
        if x in (1, n - 1):
            continue
        if not any((x := x * x % n) == n - 1 for _ in range(twos - 1)):
            return False
    return True

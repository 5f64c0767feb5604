"""The equalities between named sizes that a graph records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from graphc.ir.dims import Dim, DimExpr, Shape, as_symbol, substitute, symbol, symbols_of


class DimConstraints:
    """Equalities between dims: a union-find over named sizes, and a list of all other equalities.

    An operator that requires two equal dims calls `unify`. If a size is not known yet, the equality
    is recorded, checked when values are fed, and printed with the graph.
    """

    def __init__(self) -> None:
        self._parent: dict[str, Dim] = {}
        self.others: list[tuple[Dim, Dim]] = []

    def find(self, dim: Dim) -> Dim:
        """`dim` with every named size replaced by the representative of its class."""
        if not self._parent or not isinstance(dim, DimExpr):
            return dim
        names = symbols_of(dim)
        bindings = {name: self._root(name) for name in names if name in self._parent}
        return cast(Dim, substitute(dim, bindings)) if bindings else dim

    def _root(self, name: str) -> Dim:
        dim = self._parent[name]
        resolved = self.find(dim)
        self._parent[name] = resolved  # path compression
        return resolved

    def equal(self, a: Dim, b: Dim) -> bool:
        """Whether `a == b` follows from the recorded equalities."""
        if a == b:
            return True
        a, b = self.find(a), self.find(b)
        return a == b or (a, b) in self.others or (b, a) in self.others

    def unify(self, a: Dim, b: Dim) -> bool:
        """Records `a == b`. Returns False if they always differ, such as 2 and 3, or n and n + 1;
        nothing is recorded then."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return True
        if isinstance(a - b, int):
            return False
        for left, right in ((b, a), (a, b)):  # the first name used represents the class
            name = as_symbol(left)
            if name is not None and name not in symbols_of(right):
                return self._bind(name, right)
        if (a, b) not in self.others and (b, a) not in self.others:
            self.others = [*self.others, (a, b)]
        return True

    def unify_shapes(self, a: Shape, b: Shape) -> bool:
        """`unify` for each axis of two shapes. If they differ: False, and nothing is recorded.

        Compare shapes with this, not with `==`, because one size may have several names.
        """
        if a == b:
            return True
        return len(a) == len(b) and self._unify_all(zip(a, b, strict=True))

    def unify_broadcast(self, shape: Shape, wanted: Shape) -> bool:
        """Whether `shape` broadcasts to `wanted`. Sizes are recorded as equal if necessary.

        Each dim of `shape`, counted from the right, must be 1 or equal to the dim of `wanted`. If
        `shape` does not broadcast, nothing is recorded.
        """
        lead = len(wanted) - len(shape)
        if lead < 0:
            return False
        pairs = [(p, q) for p, q in zip(shape, wanted[lead:], strict=True) if p != 1]
        return all(q != 1 for _, q in pairs) and self._unify_all(pairs)

    def _unify_all(self, pairs: Iterable[tuple[Dim, Dim]]) -> bool:
        before = self.snapshot()
        if all(self.unify(p, q) for p, q in pairs):
            return True
        self.restore(before)
        return False

    def _bind(self, name: str, dim: Dim) -> bool:
        """Replaces the named size by `dim`, unless an earlier equality forbids it."""
        before = self.snapshot()
        self._parent = {**self._parent, name: dim}  # a new one: snapshots keep the old
        others = [(self.find(p), self.find(q)) for p, q in self.others]
        if any(isinstance(p, int) and isinstance(q, int) and p != q for p, q in others):
            self.restore(before)
            return False
        self.others = [(p, q) for p, q in others if p != q]
        return True

    def snapshot(self) -> tuple[dict[str, Dim], list[tuple[Dim, Dim]]]:
        """The equalities that are currently recorded. Nothing is copied."""
        return self._parent, self.others

    def restore(self, before: tuple[dict[str, Dim], list[tuple[Dim, Dim]]]) -> None:
        """Removes the equalities recorded since `snapshot`. A rejected operator then leaves
        none."""
        self._parent, self.others = before

    def equalities(self) -> list[tuple[Dim, Dim]]:
        """Every recorded equality, as a pair of dims."""
        named: list[tuple[Dim, Dim]] = [(symbol(n), self._root(n)) for n in self._parent]
        return named + self.others

    def finder(self) -> Callable[[Dim], Dim] | None:
        """`find`, or None if it would leave every dim unchanged."""
        return self.find if self._parent else None

"""The base class of passes, and the scan that most of them use.

The docstring of a pass answers three questions: what it does; why it is useful before JAX sees the
program (XLA fuses, schedules and folds by itself, so a pass must make the program smaller to trace,
or use facts that XLA does not have); and when it must not apply.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar, NamedTuple

from graphc.errors import PassError
from graphc.ir.node import Node, Tensor
from graphc.ir.opdef import OpDef
from graphc.ir.program import Port, Program

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class PassResult(NamedTuple):
    """The program after a pass, and the number of changes. Without changes it is the input program
    itself."""

    program: Program
    changed: int


@dataclass(frozen=True)
class Pass(ABC):
    """One step from a valid program to an equivalent valid program.

    A subclass is a frozen dataclass whose fields are its options. Passes hold no state: the same
    program and options give the same result. The name comes from the class: `FoldConstants` is
    `fold-constants`.
    """

    once: ClassVar[bool] = False  # useless or wrong in a second round
    optional: ClassVar[bool] = True  # may be disabled by `without_passes`
    exact: ClassVar[bool] = True  # False: it changes rounding, so it is not validated

    @property
    def name(self) -> str:
        return self.class_name()

    @classmethod
    def class_name(cls) -> str:
        """The name of every pass of this class."""
        return _name_of(cls.__name__)

    @abstractmethod
    def run(self, program: Program) -> PassResult:
        """The program after this pass.

        Raises:
            PassError: the pass failed. The error names the node and the user's line.
        """

    def notes(self, program: Program) -> tuple[str, ...]:
        """Sentences about the program after this pass for the pass report, such as why something
        stays unchanged."""
        return ()

    def fault(self, node: Node | None, error: Exception) -> PassError:
        """The error to raise from `error`, which occurred at `node`."""
        what = f"pass {self.name} failed"
        if node is not None:
            what += f" at {node.op.name} {node.name!r}"
        first, *rest = str(error).splitlines() or [""]
        return PassError(
            what,
            details=[f"{type(error).__name__}: {first}", *rest],
            source=getattr(error, "source", None) if node is None else node.source,
        )


@cache
def _name_of(class_name: str) -> str:
    return _WORD.sub("-", class_name).lower()


def with_bodies(node: Node, results: Sequence[PassResult]) -> tuple[Node, int]:
    """`node` with its regions replaced by `results`, one for each, and the number of changes.

    The ports of a body stay the same, so the node around it still fits.
    """
    changed = sum(result.changed for result in results)
    if not changed:
        return node, 0
    return node.replace(regions=tuple(result.program for result in results)), changed


def run_bodies(a_pass: Pass, node: Node) -> tuple[Node, int]:
    """`node` with `a_pass` run on its regions, and the number of changes there."""
    return with_bodies(node, [a_pass.run(body) for body in node.regions])


def run_all_bodies(a_pass: Pass, program: Program) -> tuple[Program, int]:
    """The program with `a_pass` run on the regions of all nodes, and the number of changes."""
    return rewrite_nodes(a_pass, program, lambda node: node)


def rewrite_nodes(
    a_pass: Pass,
    program: Program,
    rewrite: Callable[[Node], Node | Sequence[Node]],
    *,
    only: Container[OpDef] | None = None,
    enter: Callable[[Node], tuple[Node, int]] | None = None,
    instead: Mapping[Tensor, Tensor] | None = None,
    nodes: list[Node] | None = None,
) -> PassResult:
    """The program after one scan in program order, with each node replaced by `rewrite(node)`.

    Args:
        rewrite: returns `node` itself to keep it, another node, or any number of nodes.
        only: the operators for which `rewrite` may return another node; by default all. It is not
            called for other nodes, unless their operands or bodies have changed.
        enter: processes the bodies of a node before `rewrite` sees it, and returns the node and the
            number of changes; by default, `a_pass` runs on each body.
        instead: tensor -> the tensor to use in its place. `rewrite` may add to it.
        nodes: a list for the new nodes, to which `rewrite` may append too.

    Raises:
        PassError: `rewrite` or `enter` failed. The error names the node.
    """
    enter = enter or partial(run_bodies, a_pass)
    instead, nodes = {} if instead is None else instead, [] if nodes is None else nodes
    changed = 0
    node = None
    try:
        for node in program.nodes:
            if instead and not instead.keys().isdisjoint(node.inputs):
                node = node.replace(inputs=tuple([instead.get(t, t) for t in node.inputs]))
            elif only is not None and node.op not in only and not node.regions:
                nodes.append(node)
                continue
            if node.regions:
                node, inside = enter(node)
                changed += inside
            after = rewrite(node)
            if after is node:
                nodes.append(node)
                continue
            changed += 1
            nodes += (after,) if isinstance(after, Node) else after
    except Exception as error:
        raise a_pass.fault(node, error) from error
    if not changed:
        return PassResult(program, 0)
    outputs = redirect(program.outputs, instead)
    return PassResult(program.replace(nodes=tuple(nodes), outputs=outputs), changed)


def redirect(ports: tuple[Port, ...], instead: Mapping[Tensor, Tensor]) -> tuple[Port, ...]:
    """The output ports, with each tensor in `instead` replaced."""
    if not any(port.tensor in instead for port in ports):
        return ports
    return tuple(port._replace(tensor=instead.get(port.tensor, port.tensor)) for port in ports)

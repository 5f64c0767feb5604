"""What a pass is.

The docstring of a pass answers three questions: what it does; why it is worth doing before JAX
sees the program (XLA fuses, schedules and folds by itself, so a pass must make the program
smaller to trace, or know something that XLA does not); and when it must not.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

from graphc.errors import PassError
from graphc.ir.node import Node, Tensor
from graphc.ir.program import Port, Program

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class PassResult(NamedTuple):
    """A pass's answer: the program after it, and how many changes it made.

    With no changes it is the very program that went in.
    """

    program: Program
    changed: int


@dataclass(frozen=True)
class Pass(ABC):
    """One step from a valid program to a valid program that means the same.

    A subclass is a frozen dataclass whose fields are its options. Passes hold no state: the same
    program and options give the same result. The name comes from the class: `FoldConstants` is
    `fold-constants`.
    """

    once: ClassVar[bool] = False  # of no use, or wrong, in a second round
    optional: ClassVar[bool] = True  # what `without_passes` may leave out
    exact: ClassVar[bool] = True  # else it rounds otherwise than before: not to be validated

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
            PassError: the pass does not know how to go on; names the node and the user's line.
        """

    def notes(self, program: Program) -> tuple[str, ...]:
        """What the user may want to know of a program after this pass: sentences for the pass
        report, such as why it leaves something as it is."""
        return ()

    def fault(self, node: Node | None, error: Exception) -> PassError:
        """The error to raise from `error`, which came up at `node`."""
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


def run_bodies(a_pass: Pass, node: Node) -> tuple[Node, int]:
    """`node` with `a_pass` run on its regions, and the number of changes there.

    A body's ports stay, so the node around it fits as before.
    """
    results = [a_pass.run(body) for body in node.regions]
    changed = sum(result.changed for result in results)
    if not changed:
        return node, 0
    return node.replace(regions=tuple(result.program for result in results)), changed


def run_all_bodies(a_pass: Pass, program: Program) -> tuple[Program, int]:
    """The program with `a_pass` run on the regions of all nodes, and the number of changes."""
    nodes, changed = [], 0
    for node in program.nodes:
        if node.regions:
            node, inside = run_bodies(a_pass, node)
            changed += inside
        nodes.append(node)
    return (program.replace(nodes=tuple(nodes)) if changed else program), changed


def redirect(ports: tuple[Port, ...], instead: dict[Tensor, Tensor]) -> tuple[Port, ...]:
    """The output ports with their tensors replaced where `instead` has another."""
    if not any(port.tensor in instead for port in ports):
        return ports
    return tuple(port._replace(tensor=instead.get(port.tensor, port.tensor)) for port in ports)

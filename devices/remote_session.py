"""`RemoteSession`: the base of strategies that run the steps of a session in other processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import jax
from jax import numpy as jnp


class RemoteRunner(ABC):
    """Runs the steps of one session elsewhere, where the state is, too, between steps."""

    @abstractmethod
    def run(self, plan: Any, shapes: Any, values: Sequence[Any]) -> list[Any]:
        """The fetched values of one step.

        Args:
            plan, shapes: of the step: its `Plan` and `ProgramKey`.
            values: the feeds, in the order of the plan.
        """

    @abstractmethod
    def collect(self) -> None:
        """Puts the values of all variables into the session's state, if they are elsewhere."""

    @abstractmethod
    def close(self) -> None:
        """Ends the processes."""


class RemoteSession(ABC):
    """A strategy whose steps run in other processes.

    A session asks it for a runner. So the packages that start processes are imported by the
    strategy, and not by sessions.
    """

    @abstractmethod
    def resolve(self) -> Any:
        """Checks that the strategy can be followed here.

        Raises:
            GraphcError: it cannot.
        """

    @abstractmethod
    def open(self, graph: Any, options: Any, state: Any, soft: bool, log: bool) -> RemoteRunner:
        """The runner of a session.

        Args:
            graph: the `Graph` of the session.
            options: its `CompileOptions`.
            state: its `LiveState`.
            soft, log: see `soft_placement` and `log_placement` of `Session`.
        """


def in_turn(runner: RemoteRunner, plan: Any, key: Any, values: Sequence[Any]) -> list[Any]:
    """The fetched values of one step, or of several one after the other, stacked.

    Args:
        key: the `ProgramKey`; `key.steps` is the number of steps, or None.
        values: the feeds. Those of several steps have a leading axis for them.
    """
    if key.steps is None:
        return runner.run(plan, key, values)
    one = key._replace(steps=None)
    rows = [runner.run(plan, one, [value[i] for value in values]) for i in range(key.steps)]
    with jax.enable_x64(True):
        return [jnp.stack(column) for column in zip(*rows, strict=True)]

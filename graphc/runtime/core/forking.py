"""`os.fork` after devices were used: the child process gets an error instead of a hang.

JAX and XLA have threads of their own, and a child process has none of its parent's threads: the
first wait for one would never end. So in a process that was forked after graphc had used a device,
everything that needs a device raises an error. The rest still works: NumPy, building graphs,
reading files.
"""

from __future__ import annotations

import os
from threading import RLock
from typing import Any
from weakref import WeakSet

from graphc.errors import StateError

_MEND = (
    'start processes with multiprocessing.get_context("spawn"), or fork before the first run, '
    "or pass arrays of NumPy to the child and leave devices to the parent"
)


class Forking:
    """Whether this process has used devices, and whether it was forked after that.

    Attributes:
        used: whether graphc has used a device in this process.
        child: whether this process was forked from one that had used a device.
    """

    def __init__(self) -> None:
        self.used = False
        self.child = False
        self._watched: WeakSet[Any] = WeakSet()

    def watch(self, owner: Any) -> None:
        """Registers `owner.forked()` to be called in child processes if devices were used."""
        self._watched.add(owner)

    def use_devices(self) -> None:
        """Notes that devices are used from now on.

        Raises:
            StateError: in a child process that cannot use them.
        """
        if self.child:
            raise in_child()
        self.used = True

    def check(self) -> None:
        """Raises `StateError` in a child process that cannot use devices."""
        if self.child:
            raise in_child()

    def after_in_child(self) -> None:
        """Called by Python in each child process."""
        if self.used:
            self.child = True
            for owner in list(self._watched):
                owner.forked()


def in_child() -> StateError:
    """The error for a use of devices in a child process."""
    return StateError(
        "this process was forked from one that had used its devices, and cannot use them: "
        "it does not have the threads of JAX",
        hint=_MEND,
    )


def in_child_of_thread(what: str) -> StateError:
    """The error for a use of an object whose thread only the parent process has."""
    return StateError(
        f"{what} was made before this process was forked: its thread is in the parent process",
        hint="make it in the process that uses it",
    )


FORKING = Forking()


class SharedLock:
    """A lock of a module. Each child process gets a new one, since a thread that exists only in the
    parent may hold the old one.

    Attributes:
        lock: a reentrant lock. Read this attribute each time: `with shared.lock`.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        FORKING.watch(self)

    def forked(self) -> None:
        """Called in a child process."""
        self.lock = RLock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=FORKING.after_in_child)

"""`Checkpointer`: saves a session's state while it trains, and restores it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graphc.checkpoints import folder as folders
from graphc.checkpoints.arguments import (
    checked_best,
    checked_every,
    checked_folder,
    checked_keep,
    checked_metrics,
    checked_step,
)
from graphc.checkpoints.background import Background
from graphc.checkpoints.contents import Contents, Saved, contents_of
from graphc.checkpoints.manifest import load
from graphc.checkpoints.retention import Facts, Retention
from graphc.checkpoints.selection import RestoreReport, Selection, check_session, put
from graphc.closing import Closing
from graphc.copying import Uncopied
from graphc.errors import CheckpointCorruptError, CheckpointError, CheckpointWarning
from graphc.ir.calls import explained
from graphc.ir.members import Helpful
from graphc.runtime.session import Session
from graphc.typing import StateTree


@dataclass(frozen=True)
class Restored:
    """What `Checkpointer.restore` has restored.

    Attributes:
        step: the step of the checkpoint.
        extra: the tree that `save` was given; tuples have become lists, and arrays NumPy arrays.
        metrics: the figures that `save` was given.
        report: which variables were taken.

    Examples:
        >>> import tempfile
        >>> w = gc.variable(2.0, name="w")
        >>> session = gc.Session(graph)
        >>> with tempfile.TemporaryDirectory() as folder, gc.train.Checkpointer(folder) as saver:
        ...     saver.save(session, 7, extra={"epoch": 1}, wait=True)
        ...     restored = saver.restore(session)
        >>> restored.step, restored.extra
        (7, {'epoch': 1})
    """

    step: int
    extra: StateTree
    metrics: Mapping[str, float]
    report: RestoreReport


class Checkpointer(Helpful, Closing, Uncopied):
    """Saves the whole state of a session in a folder, and restores it bit by bit.

    It holds all variables, those of optimizers too, the state of random numbers and of
    the scale of the loss, and a tree of the user's. Variables are stored by name in their own
    shapes, so a checkpoint opens on any number of devices, with any strategy and options.

    A checkpoint appears in the folder when all of it is on the disk. A process that is killed, or a
    full disk, leaves the earlier ones as they were. The files are safetensors files with a
    manifest, `manifest.json`, that has a checksum of each value.

    Args:
        folder: where; made at the first `save`.
        keep: how many of the latest checkpoints stay.
        keep_best: also keep the best: the name of a metric of `save`, "min" or "max", and how many.
        keep_every: also keep one checkpoint for each so many seconds.
        asynchronous: whether `save` copies the state and returns while a thread writes.

    One Checkpointer at a time writes to a folder; any number may read it. Call `close` at the end,
    or use it as a context manager.

    Raises:
        AttributeValueError: an argument has an invalid value.

    Examples:
        >>> import tempfile
        >>> w = gc.variable(8.0, name="w")
        >>> train = gc.minimize(w**2, optax.adam(0.25))
        >>> session = gc.Session(graph)
        >>> folder = tempfile.TemporaryDirectory()
        >>> with gc.train.Checkpointer(folder.name, keep=2) as saver:
        ...     for step in range(1, 5):
        ...         _ = session.run(train)
        ...         saver.save(session, step)
        >>> saver.steps()
        [3, 4]
        >>> again = gc.Session(graph)
        >>> saver.restore(again).step, bool(again.get(w) == session.get(w))
        (4, True)
        >>> folder.cleanup()
    """

    instead = "make another Checkpointer of the same folder"

    @explained
    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keep: int = 3,
        keep_best: tuple[str, str, int] | None = None,
        keep_every: float | None = None,
        asynchronous: bool = True,
    ) -> None:
        self.folder = checked_folder(folder)
        self._retention = Retention(
            checked_keep(keep), checked_best(keep_best), checked_every(keep_every)
        )
        self._asynchronous = asynchronous
        self._background = Background()
        self._lock: folders.Lock | None = None
        self._process = os.getpid()
        self._closed = False

    # -- saving -----------------------------------------------------------------------------

    @explained
    def save(
        self,
        session: Session,
        step: int,
        *,
        extra: StateTree = None,
        metrics: Mapping[str, float] | None = None,
        wait: bool = False,
    ) -> None:
        """Saves the state of a session, as it is between two steps.

        The call copies the state. Then a thread writes it, unless `wait`. If the thread still
        writes an earlier checkpoint, the call waits for that one first. If the session runs on
        several processes, all of them call this, and the chief writes.

        Args:
            session: the session.
            step: a number that names the checkpoint. A checkpoint of the same step is replaced.
            extra: a tree to store with it: dicts with str keys, lists, str, int, float, bool, None
                and arrays.
            metrics: name -> figure, for `keep_best` and for the reader.
            wait: return when the checkpoint is on the disk.

        Raises:
            CheckpointError: this checkpoint cannot be written, or an earlier one could not be;
                another Checkpointer writes to the folder; or this one is closed.
            AttributeValueError: `step`, `extra` or `metrics` cannot be stored.
            StateError: the session is closed or has lost its state.

        Examples:
            >>> import tempfile
            >>> session = gc.Session(graph)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     with gc.train.Checkpointer(folder) as saver:
            ...         saver.save(session, 100, metrics={"loss": 0.5}, wait=True)
            ...         saver.latest()
            100
        """
        self._check_usable()
        self._background.wait()
        check_session(session, "Checkpointer.save")
        contents = contents_of(session, checked_step(step), extra, checked_metrics(metrics))
        if not session.is_chief:
            return
        if self._asynchronous and not wait:
            self._prepare()
            self._background.start(lambda: self._write(contents))
        else:
            self._prepare()
            self._write(contents)

    def _prepare(self) -> None:
        """Makes the folder and takes its lock, once."""
        if self._lock is None:
            try:
                folders.make(self.folder)
                self._lock = folders.Lock(self.folder)
                folders.remove_unfinished(self.folder)
            except OSError as error:
                raise _cannot_write(self.folder, error) from error

    def _write(self, contents: Contents) -> None:
        try:
            folders.add(self.folder, contents.step, contents.write)
            facts = [self._facts(each) for each in folders.found(self.folder)]
            leave = self._retention.leave([fact for fact in facts if fact is not None])
            for each in folders.found(self.folder):
                if each.step in leave and each.step != contents.step:
                    folders.remove(each.path)
        except OSError as error:
            raise _cannot_write(self.folder, error) from error

    def _facts(self, each: folders.Found) -> Facts | None:
        """What decides whether a checkpoint stays; None for one that cannot be read: it stays."""
        try:
            manifest = load(each.path)
        except CheckpointError:
            return None
        return Facts(each.step, manifest.created, manifest.metrics)

    def check(self) -> None:
        """Raises the failure of a `save` whose thread has ended, once. It waits for nothing.

        Raises:
            CheckpointError: the checkpoint could not be written.

        Examples:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     with gc.train.Checkpointer(folder) as saver:
            ...         saver.check()
        """
        self._background.check()

    def wait(self) -> None:
        """Waits until the checkpoint that is being written is on the disk.

        Raises:
            CheckpointError: it could not be written.

        Examples:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     with gc.train.Checkpointer(folder) as saver:
            ...         saver.save(gc.Session(graph), 1)
            ...         saver.wait()
            ...         saver.latest()
            1
        """
        self._background.wait()

    def close(self) -> None:
        """Waits as `wait` does, and lets others write to the folder. Reading stays possible.

        Examples:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     saver = gc.train.Checkpointer(folder)
            ...     saver.save(gc.Session(graph), 1)
            ...     saver.close()
            ...     saver.steps()
            [1]
        """
        self._closed = True
        try:
            self._background.wait()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _check_usable(self) -> None:
        if self._closed:
            raise CheckpointError.here("the Checkpointer is closed")
        if self._process != os.getpid():
            raise CheckpointError.here(
                "the Checkpointer belongs to the process from which this one was forked",
                hint="make another one, of another folder, after the fork",
            )

    # -- restoring --------------------------------------------------------------------------

    def steps(self) -> list[int]:
        """The steps of the complete checkpoints in the folder, in order.

        Raises:
            CheckpointError: the folder cannot be read.

        Examples:
            >>> gc.train.Checkpointer("nothing_here").steps()
            []
        """
        return [each.step for each in folders.found(self.folder)]

    def latest(self) -> int | None:
        """The largest of `steps`, or None.

        Raises:
            CheckpointError: the folder cannot be read.

        Examples:
            >>> gc.train.Checkpointer("nothing_here").latest() is None
            True
        """
        return max(self.steps(), default=None)

    @explained
    def restore(self, session: Session, step: int | None = None) -> Restored | None:
        """Gives a session the state of a checkpoint: all of it or, if it does not fit, none.

        The session must have the variables of the checkpoint, with the same shapes and dtypes;
        `gc.train.restore` takes a part of them.

        Args:
            session: the session.
            step: that of the checkpoint. By default the latest that is whole: one that was damaged
                is skipped with a warning.

        Returns:
            What was restored; None if there is no checkpoint and `step` is None.

        Raises:
            CheckpointError: there is no such checkpoint, or its variables are not those of the
                session.
            CheckpointCorruptError: it is damaged; without `step`: all are.
            StateError: the session is closed or has lost its state.

        Examples:
            >>> import tempfile
            >>> w = gc.variable(1.0, name="w")
            >>> session = gc.Session(graph)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     with gc.train.Checkpointer(folder) as saver:
            ...         saver.save(session, 1)
            ...         session.set(w, 5.0)
            ...         print(saver.restore(session, 1).report)
            took 1 of 1 variables
            >>> session.get(w)
            Array(1., dtype=float32)
        """
        check_session(session, "Checkpointer.restore")
        self._background.wait()
        candidates = folders.found(self.folder)[::-1]
        if step is not None:
            candidates = [each for each in candidates if each.step == step]
            if not candidates:
                raise self._no_such(step)
        for number, each in enumerate(candidates):
            try:
                return self._restored(session, Saved(each.path))
            except CheckpointCorruptError as error:
                if number + 1 == len(candidates):
                    raise
                warnings.warn(
                    CheckpointWarning(f"skipped: {error}"), stacklevel=3
                )  # above `explained`
        return None

    def _restored(self, session: Session, saved: Saved) -> Restored:
        selection = Selection(session, saved, exact=True)
        extra = saved.extra  # checked before the session changes
        put(session, selection, saved, hidden=True)
        manifest = saved.manifest
        return Restored(manifest.step, extra, manifest.metrics, selection.report)

    def _no_such(self, step: int) -> CheckpointError:
        steps = self.steps()
        shown = ", ".join(map(str, steps[-10:])) or "none"
        return CheckpointError.here(
            f"{str(self.folder)!r} has no checkpoint of step {step!r}",
            details=[f"it has those of steps: {shown}"],
        )

    def __repr__(self) -> str:
        return f"<Checkpointer of {str(self.folder)!r}>"


def _cannot_write(folder: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"cannot write a checkpoint to {str(folder)!r}: {error.strerror or error}",
        hint="the earlier checkpoints are intact; give a folder that can be written, with room",
    )

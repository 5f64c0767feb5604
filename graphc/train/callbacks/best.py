"""`BestCheckpoint`: a checkpoint of the best validation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from graphc.checkpoints.checkpointer import Checkpointer
from graphc.train.callbacks.watching import Watched, Watching

if TYPE_CHECKING:
    from graphc.train.run import Run


class BestCheckpoint(Watching):
    """Writes a checkpoint at each validation that is the best so far, and keeps only that one.

    `gc.train.Checkpointer(folder, keep_best=...)` keeps the best of the regular checkpoints; this
    callback also writes one when none is due. Restore it with `gc.train.Checkpointer.restore`.

    Args:
        folder: a folder of its own.
        metric, mode, min_change: as for `EarlyStopping`.

    Raises:
        AttributeValueError: an argument has an invalid value.
        UnknownNameError: from `fit`: there is no such metric.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> w = gc.variable(8.0, name="w")
        >>> train = gc.minimize(w**2, optax.sgd(0.5))  # one step finds the minimum
        >>> job = gc.train.Job(graph, train, [{}] * 6, steps=6)
        >>> check = gc.train.Validation([{}], {"loss": w**2}, every_steps=2)
        >>> best = gc.train.BestCheckpoint(folder.name, "validation/loss")
        >>> history = gc.train.fit(gc.Session(graph), job, validation=check, callbacks=[best])
        >>> gc.train.Checkpointer(folder.name).steps()
        [2]
        >>> folder.cleanup()
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        metric: str = "validation/loss",
        *,
        mode: str = "min",
        min_change: float = 0.0,
    ) -> None:
        self._watched = Watched("BestCheckpoint", metric, mode, min_change)
        self._folder = folder
        self._saver: Checkpointer | None = None

    def on_start(self, run: Run) -> None:
        """Opens the folder."""
        super().on_start(run)
        self._saver = Checkpointer(self._folder, keep=1)

    def _look(self, run: Run) -> None:
        if self._watched.improves(self._watched.value(run)) and self._saver is not None:
            run.save(self._saver)

    def on_end(self, run: Run) -> None:
        """Waits for the checkpoint that is being written."""
        saver, self._saver = self._saver, None
        if saver is not None:
            saver.close()

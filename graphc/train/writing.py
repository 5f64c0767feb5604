"""`Writer`: the checkpoints of a running `fit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.runtime.session import Session
from graphc.train.callbacks.base import Callback
from graphc.train.feeding import Feeder
from graphc.train.run import Run
from graphc.train.saving import Saves, extra_of


class Writer:
    """Writes the state of a loop between two steps.

    Attributes:
        wanted: the Checkpointers to which callbacks want a checkpoint written; see `Run.save`.
        validated_at: the step of the latest validation.
    """

    def __init__(
        self, session: Session, saves: Saves, feeder: Feeder, callbacks: Sequence[Callback]
    ) -> None:
        self._session, self._saves = session, saves
        self._feeder, self._callbacks = feeder, callbacks
        self.wanted: list[Any] = []
        self.validated_at = -1

    def regular(self, run: Run) -> None:
        """Writes a checkpoint that is due."""
        self._feeder.mark(run.step)
        self._saves.save(self._session, run.step, self._extra(run), _figures(run), wait=False)

    def last(self, run: Run) -> None:
        """Writes the checkpoint at the end, or after an interrupt."""
        saves = self._saves
        if saves.saver is not None and run.saves_at_end and saves.saved_at != run.step:
            saves.save(self._session, run.step, self._extra(run), _figures(run), wait=True)

    def for_callbacks(self, run: Run) -> None:
        """Writes the checkpoints that callbacks want."""
        while self.wanted:
            saver = self.wanted.pop(0)
            self._feeder.mark(run.step)
            saver.save(self._session, run.step, extra=self._extra(run), metrics=_figures(run))

    def _extra(self, run: Run) -> dict[str, Any]:
        return extra_of(
            run.step,
            run.epoch,
            self.validated_at,
            self._feeder.position(run.step),
            run.validation,
            self._callbacks,
        )


def _figures(run: Run) -> dict[str, float]:
    """The latest values of metrics and of the validation."""
    found = {name: float(np.asarray(value).item()) for name, value in run.metrics.items()}
    return found | {f"validation/{name}": value for name, value in run.validation.items()}

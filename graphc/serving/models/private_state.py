"""`PrivateState`: variables of a version for one client, which signatures update."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from graphc.artifacts.loading import Model
from graphc.ir.dtypes import Array
from graphc.web.failures import Failure

if TYPE_CHECKING:
    from graphc.serving.models.servable import Servable

Arrays = Mapping[str, Array]


class PrivateState:
    """The state of one client of a version. Thread-safe; its runs happen one after the other.

    The variables that no signature has assigned are those of the model, and are shared with it.

    Args:
        servable: the version. It must be in use while runs are submitted.
        model: the replica on whose device the state lies.
        seed: of the random numbers; None continues the stream that was saved.
    """

    def __init__(self, servable: Servable, model: Model, seed: int | None = None) -> None:
        self._servable = servable
        self._model = model
        state = model.state()
        self._state = state if seed is None else state.seeded(seed)
        self._turn = threading.Lock()
        self._lost = False

    @property
    def is_lost(self) -> bool:
        """Whether a run failed after it had consumed the state."""
        return self._lost

    def nbytes(self, signatures: set[str]) -> int:
        """The bytes of the variables that these signatures assign."""
        names = {name for each in signatures for name in self._model.signatures[each].assigned}
        types = self._model.variables
        sizes = [int(np.prod(types[name].sizes)) * types[name].dtype.itemsize for name in names]
        return sum(sizes)

    def submit(
        self, signature: str, inputs: Arrays, deadline: float | None = None
    ) -> Future[dict[str, Array]]:
        """The results of a run in the future, which has the failure otherwise. Until the run
        begins, `cancel` removes it.

        Args:
            deadline: in seconds of `time.monotonic()`. A run that begins later is omitted.
        """

        def run() -> dict[str, Array]:
            with self._turn:
                if deadline is not None and time.monotonic() > deadline:
                    raise Failure("DEADLINE_EXCEEDED", "the request waited until its deadline")
                return self.run(signature, inputs)

        return self._servable.submit(run)

    def run(self, signature: str, inputs: Arrays) -> dict[str, Array]:
        """The results, computed in this thread. A run that fails leaves the state unchanged.

        Raises:
            Failure: INVALID_ARGUMENT: an input is missing, not needed, or of another type.
                INTERNAL: the run failed; the state is lost if the run had consumed it.
        """
        point = self._model.signatures[signature]
        state = self._state
        try:
            if point.updates_state:
                outputs, after = point(state, **inputs)
            else:
                outputs, after = point(state, **inputs), state
            found = {name: np.asarray(value) for name, value in outputs.items()}
        except Exception as error:
            self._lost = state.is_consumed
            raise self._servable.failure(signature, error) from error
        self._state = after
        return found

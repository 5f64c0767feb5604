"""`Servable`: one loaded version of a model, which answers requests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Protocol

import numpy as np

from graphc.artifacts.entry_point import EntryPoint
from graphc.artifacts.loading import Model
from graphc.artifacts.state import ModelState
from graphc.errors import (
    ArtifactError,
    DeviceError,
    DTypeError,
    ExecutionError,
    FeedError,
    GraphcError,
    ShapeError,
    StateError,
)
from graphc.runtime.core.failures import RUN_FAILED
from graphc.serving.failures import Failure
from graphc.serving.models.uses import Uses

LOG = logging.getLogger("graphc.serving")

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

_OF_THE_REQUEST = (FeedError, ShapeError, DTypeError)


class Batched(Protocol):
    """What joins requests of one signature to batches: `graphc.serving.batching`.

    Attributes:
        sizes: the batch sizes at which it runs; empty if it joins no requests.
    """

    @property
    def sizes(self) -> Sequence[int]: ...

    def submit(self, inputs: Arrays, deadline: float | None) -> Future[dict[str, Array]]:
        """The result of one request."""

    def close(self) -> None:
        """Finishes the requests that it has."""


class Servable:
    """One loaded version. Thread-safe.

    Args:
        replicas: the same artifact, loaded on one device each.
        executor: where requests run that are not batched.

    Attributes:
        name, version: the model and its version.
        signatures: all entry points by name, also those that are refused (see `refusal`).
        default: the signature of requests that name none.
        uses: who uses it. It is closed when nobody does.
    """

    def __init__(
        self, name: str, version: int, replicas: Sequence[Model], executor: Executor
    ) -> None:
        self.name = name
        self.version = version
        self.uses = Uses()
        self._replicas = [_Replica(model) for model in replicas]
        self.signatures: Mapping[str, EntryPoint] = dict(replicas[0].signatures)
        self.default = _default([n for n in self.signatures if self.refusal(n) is None])
        self._path = replicas[0].path
        self._executor = executor
        self._batchers: dict[str, Batched] = {}
        self._turn = threading.Lock()

    # -- signatures -----------------------------------------------------------------------------

    def refusal(self, signature: str) -> Failure | None:
        """Why a signature is not served; None if it is.

        A signature that assigns variables is refused: requests share the variables. One that only
        draws random numbers is served; its requests run one after the other.
        """
        point = self.signatures.get(signature)
        if point is None:
            return Failure("FAILED_PRECONDITION", f'Serving signature key "{signature}" not found.')
        if point.assigned:
            names = ", ".join(point.assigned[:3]) + (", ..." if len(point.assigned) > 3 else "")
            return Failure(
                "FAILED_PRECONDITION",
                f"signature {signature!r} of model {self.name!r} updates variables ({names}); the "
                "server serves signatures that only read them",
            )
        return None

    # -- running --------------------------------------------------------------------------------

    def run(self, signature: str, inputs: Arrays) -> dict[str, Array]:
        """The results for inputs of exactly these sizes, computed in this thread.

        Raises:
            Failure: INVALID_ARGUMENT: an input is missing, not needed, or of another type.
                FAILED_PRECONDITION: the signature does not exist, or updates variables.
                INTERNAL: the run failed.
        """
        refused = self.refusal(signature)
        if refused is not None:
            raise refused
        replica = self._replica(signature)
        try:
            return self._run_on(replica, signature, inputs)
        finally:
            with self._turn:
                replica.busy -= 1

    def run_everywhere(self, signature: str, inputs: Arrays) -> None:
        """Runs a request on each replica, so that each has its program and weights.

        Raises:
            Failure: as for `run`.
        """
        refused = self.refusal(signature)
        if refused is not None:
            raise refused
        for replica in self._replicas:
            self._run_on(replica, signature, inputs)

    def _run_on(self, replica: _Replica, signature: str, inputs: Arrays) -> dict[str, Array]:
        try:
            return replica.call(signature, inputs)
        except Exception as error:
            raise self._failure(signature, error) from error

    def predict(
        self, signature: str, inputs: Arrays, deadline: float | None = None
    ) -> Future[dict[str, Array]]:
        """The results in the future, which has the failure otherwise. Until the request runs,
        `cancel` removes it. The caller is one of the users.

        Args:
            deadline: in seconds of `time.monotonic()`. A request that begins later is not run.
        """
        refused = self.refusal(signature)
        if refused is not None:
            return _failed(refused)
        self.uses.join()  # the caller may leave before the request has run
        try:
            batcher = self._batchers.get(signature)
            if batcher is not None:
                future = batcher.submit(inputs, deadline)
            else:
                future = self._executor.submit(self._run_in_time, signature, inputs, deadline)
        except BaseException as error:
            self.uses.leave()
            if isinstance(error, Failure):
                return _failed(error)
            raise
        future.add_done_callback(lambda _: self.uses.leave())
        return future

    def _run_in_time(
        self, signature: str, inputs: Arrays, deadline: float | None
    ) -> dict[str, Array]:
        if deadline is not None and time.monotonic() > deadline:
            raise Failure("DEADLINE_EXCEEDED", "the request waited until its deadline")
        return self.run(signature, inputs)

    def _replica(self, signature: str) -> _Replica:
        """The replica with the fewest requests. Random numbers come from the first one."""
        with self._turn:
            if not self._replicas:
                raise Failure("UNAVAILABLE", f"version {self.version} was unloaded")
            drawing = self.signatures[signature].updates_state
            found = self._replicas[0] if drawing else min(self._replicas, key=lambda r: r.busy)
            found.busy += 1
            return found

    def _failure(self, signature: str, error: Exception) -> Failure:
        if isinstance(error, Failure):
            return error
        if isinstance(error, _OF_THE_REQUEST):
            return Failure("INVALID_ARGUMENT", self.text_of(error))
        LOG.error("%s version %d, %s", self.name, self.version, signature, exc_info=error)
        if isinstance(error, (ExecutionError, DeviceError, StateError, *RUN_FAILED)):
            return Failure("INTERNAL", self.text_of(error))
        return Failure("INTERNAL", f"signature {signature!r} cannot be run; the log says why")

    def text_of(self, error: Exception) -> str:
        """The text of an error for clients: without paths and lines of the server."""
        return text_of(error, self._path)

    def sizes(self, signature: str) -> Sequence[int]:
        """The batch sizes at which a signature runs, as far as they are known."""
        batcher = self._batchers.get(signature)
        return (1,) if batcher is None else batcher.sizes or (1,)

    # -- batching and closing -------------------------------------------------------------------

    def batch(self, signature: str, batcher: Batched) -> None:
        """Lets `predict` use a batcher for a signature, from before the first request on."""
        self._batchers[signature] = batcher

    def close(self, timeout: float | None = None) -> bool:
        """Waits until nobody uses it, and frees its weights and programs.

        Returns:
            whether all requests were finished. If not, they continue, and nothing is freed by this
            call.
        """
        if not self.uses.drain(timeout):
            return False
        for batcher in self._batchers.values():
            batcher.close()
        with self._turn:
            replicas, self._replicas = self._replicas, []
            self._batchers = {}
            self.signatures = {}
        for replica in replicas:
            replica.release()
        return True


class _Replica:
    """One artifact on its device.

    Attributes:
        busy: how many requests it has.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._states: dict[str, ModelState] = {}
        self._lock = threading.Lock()
        self.busy = 0

    def call(self, signature: str, inputs: Arrays) -> dict[str, Array]:
        point = self._model.signatures[signature]
        if not point.updates_state:
            return point.on_host(inputs)
        with self._lock:  # the stream of random numbers is state: each run takes the next part
            state = self._states.pop(signature, None) or self._model.state()
            try:
                outputs, state = point(state, **inputs)
            finally:
                if not state.is_consumed:
                    self._states[signature] = state
            return {name: np.asarray(value) for name, value in outputs.items()}

    def release(self) -> None:
        self._states.clear()
        self._model.release()


def text_of(error: Exception, path: str = "") -> str:
    """The text of an error for clients: without paths and lines of the server.

    Args:
        path: the artifact, whose name is replaced.
    """
    if not isinstance(error, GraphcError):
        return str(error).partition("\n")[0] or type(error).__name__
    lines = [error.what, *error.details, *([f"hint: {error.hint}"] if error.hint else [])]
    text = "\n".join(lines)
    return text.replace(path, "the artifact") if path else text


def error_code(error: Exception) -> str:
    """gRPC's canonical name for an error of loading."""
    if isinstance(error, Failure):
        return error.code
    return "FAILED_PRECONDITION" if isinstance(error, ArtifactError) else "INTERNAL"


def _failed(failure: Failure) -> Future[dict[str, Array]]:
    future: Future[dict[str, Array]] = Future()
    future.set_exception(failure)
    return future


def _default(names: Sequence[str]) -> str:
    for name in ("serving_default", "predict"):
        if name in names:
            return name
    return names[0] if len(names) == 1 else "serving_default"

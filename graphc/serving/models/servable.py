"""`Servable`: one loaded version of a model, which answers requests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from itertools import count
from typing import Protocol

import numpy as np

from graphc.artifacts.entry_point import EntryPoint
from graphc.artifacts.loading import Model
from graphc.artifacts.state import ModelState
from graphc.artifacts.strings import Strings
from graphc.errors import DeviceError, DTypeError, ExecutionError, FeedError, ShapeError, StateError
from graphc.ir.dims import symbols_of
from graphc.ir.dtypes import Array
from graphc.runtime.core.failures import RUN_FAILED
from graphc.serving.failures import no_such_signature
from graphc.serving.models.error_texts import text_of
from graphc.serving.models.private_state import PrivateState
from graphc.serving.models.uses import Uses
from graphc.web.failures import Failure

LOG = logging.getLogger("graphc.serving")

Arrays = Mapping[str, Array]

_OF_THE_REQUEST = (FeedError, ShapeError, DTypeError)
_OF_THE_RUN = (ExecutionError, DeviceError, StateError)


class Batched(Protocol):
    """What joins requests of one signature to batches: `graphc.serving.batching`.

    Attributes:
        waiting: how many batches wait.
    """

    def inputs_of_all_sizes(self, examples: Sequence[Arrays]) -> Iterator[dict[str, Array]]:
        """Inputs of each size in which batches run."""

    @property
    def waiting(self) -> int: ...

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
        self._states = count()

    # -- signatures -----------------------------------------------------------------------------

    def refusal(self, signature: str) -> Failure | None:
        """Why a signature is not served; None if it is.

        A signature that assigns variables is refused: requests share the variables. One that only
        draws random numbers is served; its requests run one after the other.
        """
        point = self.signatures.get(signature)
        if point is None:
            return no_such_signature(signature, self.signatures)
        if point.assigned:
            names = ", ".join(point.assigned[:3]) + (", ..." if len(point.assigned) > 3 else "")
            return Failure(
                "FAILED_PRECONDITION",
                f"signature {signature!r} of model {self.name!r} updates variables ({names}); "
                "use it in a session, which has variables of its own",
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
        numbers = self.run_numbers(signature, self.numbers(signature, inputs))
        return self.strings(signature, numbers)

    def numbers(self, signature: str, inputs: Arrays) -> Arrays:
        """The inputs with numbers in place of strings.

        Raises:
            Failure: INVALID_ARGUMENT: a word is not in the vocabulary.
        """
        return self._converted(signature, inputs, Strings.ids)

    def strings(self, signature: str, outputs: Arrays) -> dict[str, Array]:
        """The outputs with strings in place of numbers.

        Raises:
            Failure: INTERNAL: a number is not in the vocabulary.
        """
        return dict(self._converted(signature, outputs, Strings.strings))

    def _converted(
        self, signature: str, values: Arrays, convert: Callable[[Strings, Arrays], Arrays]
    ) -> Arrays:
        point = self.signatures.get(signature)
        if point is None or not point.strings:
            return values
        try:
            return convert(point.strings, values)
        except Exception as error:
            raise self.failure(signature, error) from error

    def run_numbers(self, signature: str, inputs: Arrays) -> dict[str, Array]:
        """As `run`, with numbers in place of strings in the inputs and outputs.

        Raises:
            Failure: as for `run`.
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

    def run_everywhere(self, signature: str, inputs: Arrays) -> dict[str, Array]:
        """Runs a request on each replica, so that each has its program and weights. A signature
        that assigns variables runs on variables that are then forgotten.

        Args:
            inputs: with numbers in place of strings.

        Returns:
            the results of the last one, which may have numbers in place of strings.

        Raises:
            Failure: as for `run`.
        """
        refused = self.refusal(signature)
        point = self.signatures.get(signature)
        if refused is not None and (point is None or not point.assigned):
            raise refused
        outputs: dict[str, Array] = {}
        for replica in self._replicas:
            if refused is not None:
                outputs = PrivateState(self, replica.model).run(signature, inputs)
            else:
                outputs = self._run_on(replica, signature, inputs)
        return outputs

    def private(self, seed: int | None = None) -> PrivateState:
        """Variables for a session, on one of the replicas in turn. The caller is one of the users.

        Args:
            seed: of the random numbers; None continues the stream that was saved.

        Raises:
            Failure: UNAVAILABLE: the version was unloaded.
        """
        with self._turn:
            if not self._replicas:
                raise Failure("UNAVAILABLE", f"version {self.version} was unloaded")
            replica = self._replicas[next(self._states) % len(self._replicas)]
        return PrivateState(self, replica.model, seed)

    def submit(self, work: Callable[[], dict[str, Array]]) -> Future[dict[str, Array]]:
        """The result of a function, which runs in the version's threads. The caller is one of the
        users, and may leave before."""
        self.uses.join()
        try:
            future = self._executor.submit(work)
        except BaseException:
            self.uses.leave()
            raise
        future.add_done_callback(lambda _: self.uses.leave())
        return future

    def _run_on(self, replica: _Replica, signature: str, inputs: Arrays) -> dict[str, Array]:
        try:
            return replica.call(signature, inputs)
        except Exception as error:
            raise self.failure(signature, error) from error

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
        batcher = self._batchers.get(signature)
        if batcher is None:
            return self.submit(partial(self._run_in_time, signature, inputs, deadline))
        self.uses.join()  # the caller may leave before the request has run
        try:
            future = batcher.submit(self.numbers(signature, inputs), deadline)
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

    def failure(self, signature: str, error: Exception) -> Failure:
        """The failure of a request because of an error in its run."""
        if isinstance(error, Failure):
            return error
        if isinstance(error, _OF_THE_REQUEST):
            return Failure("INVALID_ARGUMENT", self.text_of(error))
        where = self.name, self.version, signature
        if isinstance(error, _OF_THE_RUN) and error.__cause__ is error.__context__ is None:
            # graphc found the failure itself: its text says all, and a traceback would add nothing.
            text = self.text_of(error)
            LOG.error("%s version %d, %s: %s", *where, text.replace("\n", "; "))
            return Failure("INTERNAL", text)
        LOG.error("%s version %d, %s", *where, exc_info=error)
        if isinstance(error, (*_OF_THE_RUN, *RUN_FAILED)):
            return Failure("INTERNAL", self.text_of(error))
        return Failure("INTERNAL", f"signature {signature!r} cannot be run; the log says why")

    def text_of(self, error: Exception) -> str:
        """The text of an error for clients: without paths and lines of the server."""
        return text_of(error, self._path)

    def inputs_of_all_sizes(self, signature: str, examples: Sequence[Arrays]) -> Iterator[Arrays]:
        """Inputs of a signature for warm-up: the examples, at each size in which batches run, all
        with numbers in place of strings. Without examples, the values are zero, and sizes without
        buckets are 1.

        Raises:
            Failure: INVALID_ARGUMENT: an example exceeds the largest bucket.
        """
        batcher = self._batchers.get(signature)
        if batcher is not None:
            return batcher.inputs_of_all_sizes(examples)
        return iter(examples or [_zeros(self.signatures[signature])])

    def waiting(self) -> dict[str, int]:
        """How many batches of each signature wait."""
        return {name: batcher.waiting for name, batcher in list(self._batchers.items())}

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
        self.model = model
        self._states: dict[str, ModelState] = {}
        self._lock = threading.Lock()
        self.busy = 0

    def call(self, signature: str, inputs: Arrays) -> dict[str, Array]:
        point = self.model.signatures[signature]
        if not point.updates_state:
            return point.on_host(inputs)
        with self._lock:  # the stream of random numbers is state: each run takes the next part
            state = self._states.pop(signature, None) or self.model.state()
            try:
                outputs, state = point.on_numbers(state, inputs)
            finally:
                if not state.is_consumed:
                    self._states[signature] = state
            return {name: np.asarray(value) for name, value in outputs.items()}

    def release(self) -> None:
        self._states.clear()
        self.model.release()


def _zeros(point: EntryPoint) -> dict[str, Array]:
    """Inputs of zeros. Open sizes are 1, which every artifact allows."""
    types = point.program_inputs
    names = {name for t in types.values() for dim in t.shape for name in symbols_of(dim)}
    ones = dict.fromkeys(names, 1)
    return {name: np.zeros(t.bind(ones).sizes, t.dtype) for name, t in types.items()}


def _failed(failure: Failure) -> Future[dict[str, Array]]:
    future: Future[dict[str, Array]] = Future()
    future.set_exception(failure)
    return future


def _default(names: Sequence[str]) -> str:
    for name in ("serving_default", "predict"):
        if name in names:
            return name
    return names[0] if len(names) == 1 else "serving_default"

"""`ModelSession` and `AsyncModelSession`: a client's use of variables that the server keeps."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from itertools import count
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from graphc.closing import Closing
from graphc.ir.dtypes import Array
from graphc.serving.protocol.messages import messages, parse
from graphc.serving.protocol.tensors import decode_all, encode
from graphc.serving.streams import Stream
from graphc.serving.transports import Opened, Transport
from graphc.web.failures import Failure

_LIMIT = 1 << 40


class ModelSession(Closing):
    """A session of a model server. `Client.session` opens one; `with` closes it.

    The server keeps variables for it, which start with the saved values. Only the signatures that
    are called in the session change them.

    Attributes:
        id: its name on the server.
        model, version: of what.

    Examples:
        >>> client = gc.serving.Client("http://localhost:8501")
        >>> with client.session("writer") as session:  # doctest: +SKIP
        ...     first = session.predict(tokens=prompt)["next"]
        ...     steps = session.generate(tokens=first, steps=20, feedback={"tokens": "next"})
        ...     text = [step["next"] for step in steps]
    """

    def __init__(self, transport: Transport, model: str, opened: Opened, timeout: float) -> None:
        self.id = opened.id
        self.model = model
        self.version = opened.version
        self._transport = transport
        self._timeout = timeout
        self._turn = threading.Lock()  # the server takes the numbers in order
        self._numbers = count(1)
        self._number = 0
        self._failed = b""

    def predict(
        self,
        inputs: Mapping[str, ArrayLike] | None = None,
        /,
        *,
        signature: str = "",
        outputs: Sequence[str] = (),
        timeout: float | None = None,
        **named: ArrayLike,
    ) -> dict[str, Array]:
        """The outputs of one run. It assigns variables of the session.

        A call that failed may be repeated: if the server has run it, it returns the result of that
        run. Calls of several threads follow each other.

        Args:
            inputs: name -> array; or write `x=array`. The dtypes must be those of the signature.
            signature: by default that of the session.
            outputs: only these outputs; by default all.
            timeout: instead of the client's.

        Raises:
            Failure: the server's error: `code` and `message`. NOT_FOUND: the session has ended.
        """
        request = self._request({**(inputs or {}), **named}, signature, outputs)
        data = request.SerializeToString(deterministic=True)
        timeout = timeout or self._timeout
        end = time.monotonic() + timeout
        if not self._turn.acquire(timeout=timeout):
            what = f"another call of the session did not end within {timeout:g} s"
            raise Failure("DEADLINE_EXCEEDED", what)
        try:
            if data != self._failed:
                self._number = next(self._numbers)
            self._failed = data
            left = max(0.001, end - time.monotonic())
            found = self._transport.step(self.model, self.id, data + _number(self._number), left)
            self._failed = b""
        except Failure as failure:
            if failure.code == "ABORTED":  # the number was used: the next call has another one
                self._failed = b""
            raise
        finally:
            self._turn.release()
        return _decoded(found)

    def generate(
        self,
        inputs: Mapping[str, ArrayLike] | None = None,
        /,
        *,
        steps: int,
        feedback: Mapping[str, str] | None = None,
        stop: Mapping[str, ArrayLike] | None = None,
        signature: str = "",
        outputs: Sequence[str] = (),
        timeout: float | None = None,
        **named: ArrayLike,
    ) -> Generator[dict[str, Array], None, None]:
        """The outputs of several runs, as the server computes them.

        If the iterator is closed earlier, the server completes the step that runs, and no other.

        Args:
            inputs: of the first run; or write `x=array`. In the others they are the same, except
                for those in `feedback`.
            steps: how many runs there are at most.
            feedback: input -> output of the run before; none by default.
            stop: output -> values: a run is the last one if all elements of this output are among
                the values.
            signature, outputs: as for `predict`.
            timeout: seconds for all runs together; by default there is no limit here. The server
                limits each run.

        Raises:
            Failure: as for `predict`, when the iterator is used. ABORTED: a proxy sent the request
                twice. The server does not run it again.
        """
        asked = self._stream(inputs, steps, feedback, stop, signature, outputs, timeout, named)
        try:
            for found in asked:
                yield _decoded(found)
        finally:
            asked.close()

    def close(self) -> None:
        """Ends the session, if it has not ended.

        Raises:
            Failure: the server cannot be reached.
        """
        try:
            self._transport.close_session(self.model, self.id, self._timeout)
        except Failure as failure:
            if failure.code != "NOT_FOUND":
                raise

    def _stream(
        self,
        inputs: Mapping[str, ArrayLike] | None,
        steps: int,
        feedback: Mapping[str, str] | None,
        stop: Mapping[str, ArrayLike] | None,
        signature: str,
        outputs: Sequence[str],
        timeout: float | None,
        named: Mapping[str, ArrayLike],
    ) -> Stream:
        request = self._request({**(inputs or {}), **named}, signature, outputs)
        request.steps = steps
        request.feedback.update(feedback or {})
        for name, values in (stop or {}).items():
            encode(np.asarray(values), request.stop[name])
        request.number = next(self._numbers)
        self._failed = b""  # the server refuses lower numbers from now on
        return self._transport.stream(self.model, self.id, request.SerializeToString(), timeout)

    def _request(
        self, inputs: Mapping[str, ArrayLike], signature: str, outputs: Sequence[str]
    ) -> Any:
        """A SessionRequest: PackedTensors are TensorProtos on the wire."""
        message = messages().PackedSessionRequest(output_filter=list(outputs))
        spec = message.session
        spec.model, spec.session_id, spec.signature_name = self.model, self.id, signature
        for name, value in inputs.items():
            encode(np.asarray(value), message.inputs[name])
        return message


class AsyncModelSession:
    """`ModelSession` for asyncio: the same methods. `AsyncClient.session` opens one.

    Examples:
        >>> async def write(client, prompt):
        ...     async with await client.session("writer") as session:
        ...         feedback = {"tokens": "next"}
        ...         async for step in session.generate(tokens=prompt, steps=9, feedback=feedback):
        ...             print(step["next"])
    """

    def __init__(self, session: ModelSession) -> None:
        self._session = session
        self.id, self.model, self.version = session.id, session.model, session.version

    async def predict(
        self,
        inputs: Mapping[str, ArrayLike] | None = None,
        /,
        *,
        signature: str = "",
        outputs: Sequence[str] = (),
        timeout: float | None = None,
        **named: ArrayLike,
    ) -> dict[str, Array]:
        """See `ModelSession.predict`."""
        return await asyncio.to_thread(
            self._session.predict,
            {**(inputs or {}), **named},
            signature=signature,
            outputs=outputs,
            timeout=timeout,
        )

    async def generate(
        self,
        inputs: Mapping[str, ArrayLike] | None = None,
        /,
        *,
        steps: int,
        feedback: Mapping[str, str] | None = None,
        stop: Mapping[str, ArrayLike] | None = None,
        signature: str = "",
        outputs: Sequence[str] = (),
        timeout: float | None = None,
        **named: ArrayLike,
    ) -> AsyncGenerator[dict[str, Array], None]:
        """See `ModelSession.generate`."""
        asked = self._session._stream(
            inputs, steps, feedback, stop, signature, outputs, timeout, named
        )
        try:
            while (found := await asyncio.to_thread(next, asked, None)) is not None:
                yield _decoded(found)
        finally:
            asked.close()

    async def close(self) -> None:
        """See `ModelSession.close`."""
        await asyncio.to_thread(self._session.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def _number(number: int) -> bytes:
    """The last field of a SessionRequest."""
    data: bytes = messages().SessionRequest(number=number).SerializeToString()
    return data


def _decoded(data: bytes) -> dict[str, Array]:
    return decode_all(parse("PredictResponse", data).outputs, _LIMIT)

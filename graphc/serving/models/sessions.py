"""`Sessions`: states that the server keeps for clients, within limits and for a limited time."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from graphc.ir.dtypes import Array
from graphc.serving.config import SessionConfig
from graphc.serving.failures import no_such_signature
from graphc.serving.models.last_request import LastRequest
from graphc.serving.models.private_state import Arrays, PrivateState
from graphc.serving.models.servable import Servable
from graphc.web.failures import Failure

_REASONS = {
    "closed": "it was closed",
    "idle": "it was not used for too long",
    "age": "it was open for too long",
    "lost": "a run failed and left no state",
    "shutdown": "the server is shutting down",
}
_REMEMBERED = 1024  # ended sessions: a client is told that its session expired
Owner = int | None
"""Who may use a session: the number of a token, or None without tokens."""


@dataclass(eq=False)
class Session:
    """One session. The table's lock protects it.

    Attributes:
        signature: of calls that name none; "" if each call must name one.
        waiting: requests for it, while another one uses it.
        created, used: in seconds of the table's clock.
        steps: how many runs have been completed.
        nbytes: the bytes of the variables that its signatures assign.
        end: why it has ended; "" while it is open.
        last: its last numbered request.
    """

    id: str
    owner: Owner
    servable: Servable
    state: PrivateState
    signature: str
    created: float
    used: float
    busy: bool = False
    waiting: deque[Future[Session]] = field(default_factory=deque)
    steps: int = 0
    nbytes: int = 0
    end: str = ""
    signatures: set[str] = field(default_factory=set)
    last: LastRequest = field(default_factory=LastRequest)


class _Ended(NamedTuple):
    """What is remembered of a session that has ended."""

    model: str
    owner: Owner
    reason: str

    @staticmethod
    def of(session: Session) -> _Ended:
        return _Ended(session.servable.name, session.owner, session.end)

    def failure(self, id: str) -> Failure:
        """The failure of a request that names the session."""
        expired = self.reason in ("idle", "age")
        what = f"session {id} has ended: {_REASONS[self.reason]}"
        return Failure("NOT_FOUND", what, http_status=410 if expired else None)


class Sessions:
    """The open sessions of all models. Thread-safe.

    A session belongs to one version of a model, which stays loaded while the session is open. It
    ends when it is closed, when it was not used for a time, or when it is too old. If there are
    too many sessions, no further one is opened: the state of another client is never removed to
    make room.

    Args:
        config: the limits.
        clock: the time in seconds.

    Attributes:
        observers: called with the model and the reason when a session has ended: "closed", "idle",
            "age", "lost" or "shutdown".
    """

    def __init__(
        self, config: SessionConfig | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.config = config or SessionConfig()
        self.observers: list[Callable[[str, str], None]] = []
        self._clock = clock
        self._open: dict[str, Session] = {}
        self._ended: OrderedDict[str, _Ended] = OrderedDict()
        self._lock = threading.Lock()
        self._shut = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._open)

    @property
    def nbytes(self) -> int:
        """The bytes of the variables of all open sessions."""
        with self._lock:
            return sum(session.nbytes for session in self._open.values())

    # -- opening and closing --------------------------------------------------------------------

    def open(
        self, servable: Servable, signature: str = "", owner: Owner = None, seed: int | None = None
    ) -> Session:
        """A new session. The caller uses the servable.

        Args:
            signature: of calls that name none; by default the only one that assigns variables.
            owner: who alone may use it.
            seed: of the random numbers; by default the stream goes on that was saved.

        Raises:
            Failure: FAILED_PRECONDITION: no such signature, or none that has a state.
                RESOURCE_EXHAUSTED: there are too many sessions. UNIMPLEMENTED: sessions are
                disabled. UNAVAILABLE: the server ends.
        """
        if self.config.max_sessions == 0:
            raise Failure("UNIMPLEMENTED", "this server keeps no sessions")
        self.expire()
        signature = _signature(servable, signature)
        now = self._clock()
        session = Session(
            secrets.token_urlsafe(18), owner, servable, servable.private(seed), signature, now, now
        )
        with self._lock:
            if self._shut.is_set():
                raise Failure("UNAVAILABLE", "the server is shutting down")
            if len(self._open) >= self.config.max_sessions:
                most = self.config.max_sessions
                raise Failure("RESOURCE_EXHAUSTED", f"{most} sessions are open; try later")
            if signature:
                self._reserve(session, signature)
            servable.uses.join()
            self._open[session.id] = session
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._expire_forever, name="graphc-sessions", daemon=True
                )
                self._thread.start()
        return session

    def end(self, model: str, id: str, owner: Owner = None) -> None:
        """Ends a session. A run in progress is completed.

        Raises:
            Failure: NOT_FOUND: there is no such session.
        """
        with self._lock:
            session = self._find(model, id, owner)
            self._remove(session, "closed")
        self._tell(session)

    def find(self, model: str, id: str, owner: Owner = None) -> Session:
        """A session, without using it.

        Raises:
            Failure: NOT_FOUND: there is no such session.
        """
        self.expire()
        with self._lock:
            return self._find(model, id, owner)

    # -- runs -----------------------------------------------------------------------------------

    def enter(self, model: str, id: str, owner: Owner = None) -> Future[Session]:
        """A session for one request, in the future: requests have it one after the other.

        The caller calls `leave` when it is done, unless it has cancelled the future.

        Raises:
            Failure: NOT_FOUND: there is no such session (HTTP status 410 if it expired). The
                future has this failure if the session ends before.
        """
        self.expire()
        turn: Future[Session] = Future()
        with self._lock:
            session = self._find(model, id, owner)
            if session.busy:
                session.waiting.append(turn)
                return turn
            session.busy = True
        turn.set_result(session)
        return turn

    def leave(self, session: Session) -> None:
        """Ends the use of a session by one request. The next one that waits has it then."""
        following: Future[Session] | None = None
        with self._lock:
            session.busy, session.used = False, self._clock()
            lost = session.state.is_lost and not session.end
            if lost:
                self._remove(session, "lost")
            while session.waiting and following is None:
                turn = session.waiting.popleft()
                if turn.set_running_or_notify_cancel():  # it was not cancelled
                    session.busy, following = True, turn
        if following is not None:
            following.set_result(session)
        if lost:
            self._tell(session)

    def run(
        self, session: Session, signature: str, inputs: Arrays, deadline: float | None = None
    ) -> Future[dict[str, Array]]:
        """The results of a signature in the future; see `PrivateState.submit`.

        Raises:
            Failure: NOT_FOUND: the session has ended. RESOURCE_EXHAUSTED: its variables have too
                many bytes.
        """
        if self._clock() - session.created >= self.config.max_seconds:
            self.expire()
        with self._lock:
            if session.end:
                raise _Ended.of(session).failure(session.id)
            self._reserve(session, signature)
            future = session.state.submit(signature, inputs, deadline)
        future.add_done_callback(lambda done: self._count(session, done))
        return future

    def _count(self, session: Session, done: Future[dict[str, Array]]) -> None:
        if not done.cancelled() and done.exception() is None:
            with self._lock:
                session.steps += 1

    def _reserve(self, session: Session, signature: str) -> None:
        """Counts the variables that a signature assigns. The caller holds the lock."""
        if signature in session.signatures:
            return
        signatures = {*session.signatures, signature}
        size = session.state.nbytes(signatures)
        others = sum(each.nbytes for each in self._open.values() if each is not session)
        if others + size > self.config.max_bytes:
            raise Failure(
                "RESOURCE_EXHAUSTED",
                f"a session of {session.servable.name!r} with signature {signature!r} needs {size} "
                f"bytes; {max(0, self.config.max_bytes - others)} of {self.config.max_bytes} are "
                "free",
            )
        session.signatures, session.nbytes = signatures, size

    # -- the end --------------------------------------------------------------------------------

    def expire(self) -> None:
        """Ends the sessions that were not used for too long, or that are too old."""
        now, config = self._clock(), self.config
        ended = []
        with self._lock:
            for session in list(self._open.values()):
                if now - session.created >= config.max_seconds:
                    self._remove(session, "age")
                elif not session.busy and now - session.used >= config.idle_seconds:
                    self._remove(session, "idle")
                else:
                    continue
                ended.append(session)
        for session in ended:
            self._tell(session)

    def close(self) -> None:
        """Ends all sessions, and opens no further ones. Runs in progress are completed."""
        with self._lock:
            self._shut.set()
            sessions = list(self._open.values())
            for session in sessions:
                self._remove(session, "shutdown")
        for session in sessions:
            self._tell(session)
        if self._thread is not None:
            self._thread.join()

    def _expire_forever(self) -> None:
        seconds = min(self.config.idle_seconds, self.config.max_seconds) / 4
        while not self._shut.wait(min(max(seconds, 0.05), 5.0)):
            self.expire()

    def _find(self, model: str, id: str, owner: Owner) -> Session:
        session = self._open.get(id)
        if session is not None and (session.servable.name, session.owner) == (model, owner):
            return session
        ended = self._ended.get(id)
        if ended is not None and (ended.model, ended.owner) == (model, owner):
            raise ended.failure(id)
        raise Failure("NOT_FOUND", f"no session {id[:40]!r} of model {model[:100]!r}")

    def _remove(self, session: Session, reason: str) -> None:
        """The caller holds the lock, and calls `_tell` without it."""
        del self._open[session.id]
        session.end = reason
        self._ended[session.id] = ended = _Ended.of(session)
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        session.servable.uses.leave()
        while session.waiting:
            turn = session.waiting.popleft()
            if turn.set_running_or_notify_cancel():
                turn.set_exception(ended.failure(session.id))

    def _tell(self, session: Session) -> None:
        for observer in self.observers:
            observer(session.servable.name, session.end)


def _signature(servable: Servable, name: str) -> str:
    """The signature of calls that name none, or ""."""
    points = servable.signatures
    if name and name not in points:
        raise no_such_signature(name, points)
    if not any(point.updates_state for point in points.values()):
        raise Failure(
            "FAILED_PRECONDITION",
            f"model {servable.name!r} has no signature that updates variables or draws random "
            "numbers: it needs no sessions",
        )
    assigning = [each for each, point in points.items() if point.assigned]
    return name or (assigning[0] if len(assigning) == 1 else "")

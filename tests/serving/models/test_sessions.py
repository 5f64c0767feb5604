"""The table of sessions: limits, expiry, owners and order, with a model without an artifact."""

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphc.serving.config import SessionConfig
from graphc.serving.models.sessions import Session, Sessions
from graphc.web.failures import Failure
from tests.serving.stateful import Clock, CountingServable

X = {"x": np.int32([1, 2])}


@pytest.fixture
def table() -> Iterator[Callable[..., tuple[Sessions, CountingServable, Clock]]]:
    made = []

    def make(**limits: Any) -> tuple[Sessions, CountingServable, Clock]:
        clock = Clock()
        made.append(Sessions(SessionConfig(**limits), clock))
        return made[-1], CountingServable(), clock

    yield make
    for sessions in made:
        sessions.close()


def failure(call: Callable[..., Any], *args: Any) -> Failure:
    with pytest.raises(Failure) as caught:
        call(*args)
    return caught.value


def run(sessions: Sessions, session: Session, signature: str = "add") -> int:
    return sessions.run(session, signature, X).result()["total"][0]


def test_sessions_have_states_of_their_own(table) -> None:
    sessions, servable, _ = table()
    one, two = sessions.open(servable, "add"), sessions.open(servable, "add", seed=10)
    assert [run(sessions, one), run(sessions, two), run(sessions, one)] == [3, 13, 6]
    assert (one.steps, two.steps) == (2, 1)
    assert one.id != two.id and len(one.id) >= 20
    assert len(sessions) == 2 and sessions.nbytes == 16 and servable.in_use == 2


def test_a_session_that_is_not_used_expires(table) -> None:
    sessions, servable, clock = table(idle_seconds=10, max_seconds=100)
    ends: list[tuple[str, str]] = []
    sessions.observers.append(lambda model, reason: ends.append((model, reason)))
    one, two = sessions.open(servable), sessions.open(servable)
    clock.now = 9.0
    sessions.leave(sessions.enter("counter", two.id).result())
    clock.now = 10.0
    found = failure(sessions.enter, "counter", one.id)
    assert (found.code, found.http_status) == ("NOT_FOUND", 410)
    assert "was not used for too long" in found.message
    assert ends == [("counter", "idle")] and servable.in_use == 1
    assert sessions.find("counter", two.id) is two


def test_a_session_in_use_ends_only_when_it_is_too_old(table) -> None:
    sessions, servable, clock = table(idle_seconds=10, max_seconds=100)
    session = sessions.enter("counter", sessions.open(servable, "add").id).result()
    clock.now = 99.0
    sessions.expire()
    assert run(sessions, session) == 3
    clock.now = 100.0
    found = failure(run, sessions, session)
    assert found.http_status == 410 and "open for too long" in found.message
    sessions.leave(session)
    assert servable.in_use == 0


def test_too_many_sessions_are_refused_and_none_is_removed(table) -> None:
    sessions, servable, clock = table(max_sessions=2, idle_seconds=10)
    kept = [sessions.open(servable), sessions.open(servable)]
    found = failure(sessions.open, servable)
    assert (found.code, found.http_status) == ("RESOURCE_EXHAUSTED", 429)
    assert all(sessions.find("counter", session.id) for session in kept)
    assert servable.in_use == 2
    sessions.end("counter", kept[0].id)
    sessions.open(servable)
    clock.now = 10.0
    sessions.open(servable)  # the others have expired
    assert len(sessions) == 1
    none, _, _ = table(max_sessions=0)
    assert failure(none.open, servable).code == "UNIMPLEMENTED"


def test_the_bytes_of_all_sessions_are_limited(table) -> None:
    sessions, servable, _ = table(max_bytes=20)
    one, two = sessions.open(servable, "add"), sessions.open(servable, "add")
    found = failure(sessions.open, servable, "add")
    assert found.code == "RESOURCE_EXHAUSTED"
    assert "needs 8 bytes; 4 of 20 are free" in found.message
    assert failure(run, sessions, one, "twice").code == "RESOURCE_EXHAUSTED"
    assert servable.states[0].total == 0  # nothing ran
    sessions.end("counter", two.id)
    assert run(sessions, one, "twice") == 6 and sessions.nbytes == 16


def test_only_the_owner_has_a_session(table) -> None:
    sessions, servable, _ = table()
    session = sessions.open(servable, owner=1)
    assert sessions.find("counter", session.id, 1) is session
    for model, id, owner in [
        ("counter", session.id, 0),
        ("counter", session.id, None),
        ("other", session.id, 1),
        ("counter", "x" * 100, 1),
    ]:
        for call in (sessions.find, sessions.enter, sessions.end):
            found = failure(call, model, id, owner)
            assert (found.code, found.http_status) == ("NOT_FOUND", 404)
    sessions.end("counter", session.id, 1)
    assert "it was closed" in failure(sessions.find, "counter", session.id, 1).message
    assert "has ended" not in failure(sessions.find, "counter", session.id, 0).message


def test_requests_have_a_session_in_turn(table) -> None:
    sessions, servable, _ = table()
    id = sessions.open(servable).id
    turns = [sessions.enter("counter", id) for _ in range(4)]
    assert [turn.done() for turn in turns] == [True, False, False, False]
    assert turns[1].cancel()
    sessions.leave(turns[0].result())
    assert turns[2].done() and not turns[3].done()
    sessions.end("counter", id)
    with pytest.raises(Failure, match="it was closed"):
        turns[3].result(0)
    with pytest.raises(CancelledError):
        turns[1].result(0)
    sessions.leave(turns[2].result())


def test_a_session_whose_state_is_lost_ends(table) -> None:
    sessions, servable, _ = table()
    session = sessions.enter("counter", sessions.open(servable).id).result()
    waiting = sessions.enter("counter", session.id)
    servable.states[0].is_lost = True
    sessions.leave(session)
    with pytest.raises(Failure, match="left no state"):
        waiting.result(0)
    assert failure(sessions.find, "counter", session.id).http_status == 404
    assert servable.in_use == 0


def test_the_server_ends(table) -> None:
    sessions, servable, _ = table()
    session = sessions.open(servable, "add")
    sessions.close()
    assert failure(sessions.open, servable).code == "UNAVAILABLE"
    assert "shutting down" in failure(run, sessions, session).message
    assert servable.in_use == 0 and len(sessions) == 0


def test_sessions_expire_without_a_request(table) -> None:
    sessions, servable, clock = table(idle_seconds=0.1)
    sessions.open(servable)
    clock.now = 1.0
    while len(sessions):  # until the table's thread removes it
        pass
    assert servable.in_use == 0


def test_signatures_of_a_session(table) -> None:
    sessions, servable, _ = table()
    assert sessions.open(servable).signature == ""  # two signatures assign variables
    found = failure(sessions.open, servable, "other")
    assert found.code == "FAILED_PRECONDITION" and "there are: add, twice" in found.message
    point = servable.signatures.pop("add")
    assert sessions.open(servable).signature == "twice"
    servable.signatures = {
        "predict": SimpleNamespace(**{**vars(point), "assigned": (), "updates_state": False})
    }
    assert "needs no sessions" in failure(sessions.open, servable).message


def test_the_memory_of_ended_sessions_is_bounded(table) -> None:
    sessions, servable, _ = table()
    ids = [sessions.open(servable).id]
    sessions.end("counter", ids[0])
    for _ in range(1024):
        sessions.end("counter", sessions.open(servable).id)
    assert len(sessions._ended) == 1024
    assert "has ended" not in failure(sessions.find, "counter", ids[0]).message


@pytest.mark.parametrize("field", ["max_sessions", "max_bytes", "idle_seconds", "max_seconds"])
def test_invalid_limits(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        SessionConfig(**{field: -1})

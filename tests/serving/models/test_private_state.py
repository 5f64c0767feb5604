"""Sessions of a saved decoder, without endpoints: results equal those without a server exactly."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from threading import Thread

import jax
import numpy as np
import pytest

from graphc.serving.config import ModelConfig, SessionConfig
from graphc.serving.models.manager import Manager
from graphc.web.failures import Failure
from tests.serving.decoder import STATE_BYTES, local, put


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("models") / "decoder"
    put(found)
    return found


@pytest.fixture(scope="module")
def manager(folder) -> Iterator[Manager]:
    found = Manager([ModelConfig("decoder", str(folder))], poll_seconds=0, cache=None)
    found.start()
    yield found
    assert found.close(timeout=60)


def steps(session, table, signature: str, tokens: list[int], count: int) -> list:
    """The outputs of `count` steps: first with the given tokens, then with the previous output."""
    found: list = []
    given = list(tokens)
    while len(found) < count:
        token = np.int32([given.pop(0)]) if given else found[-1]["next"]
        found.append(table.run(session, signature, {"token": token}).result())
    return found


def alike(found: list, expected: Iterator) -> bool:
    pairs = list(zip(found, islice(expected, len(found)), strict=True))
    return all(a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a) for a, b in pairs)


def test_interleaved_sessions_are_as_local_decoding(manager) -> None:
    table = manager.sessions
    with manager.use("decoder") as servable:
        one, two = table.open(servable, "step"), table.open(servable, "step")
    found: tuple[list, list] = ([], [])
    tokens = [np.int32([1]), np.int32([9])]
    for _ in range(6):
        for number, session in enumerate((one, two)):
            outputs = table.run(session, "step", {"token": tokens[number]}).result()
            found[number].append(outputs)
            tokens[number] = outputs["next"]
    assert alike(found[0], local("step", [1])) and alike(found[1], local("step", [9]))
    assert (found[0][-1]["logits"] != found[1][-1]["logits"]).any()


def test_sessions_in_threads(manager) -> None:
    results: dict[int, list] = {}

    def decode(token: int) -> None:
        with manager.use("decoder") as servable:
            session = manager.sessions.open(servable, "step")
        results[token] = steps(session, manager.sessions, "step", [token], 20)

    threads = [Thread(target=decode, args=(token,)) for token in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(alike(found, local("step", [token])) for token, found in results.items())


def test_weights_are_shared_and_states_are_not(manager) -> None:
    table = manager.sessions
    with manager.use("decoder") as servable:
        before = manager.sharing.arrays.nbytes, table.nbytes
        sessions = [table.open(servable, "step") for _ in range(3)]
        for number, session in enumerate(sessions):
            steps(session, table, "step", [number], 1)
        assert manager.sharing.arrays.nbytes == before[0]
        assert table.nbytes == before[1] + 3 * STATE_BYTES
        states = [session.state._state for session in sessions]
        assert all(set(state._values) == {"hidden"} for state in states)
        # Requests without a session, and new sessions, use the saved values.
        token = np.int32([3])
        found = servable.run("logits", {"token": token})["logits"]
        assert (found == next(local("step", [3]))["logits"]).all()
        assert not servable.run("look", {})["hidden"].any()
        look = table.run(sessions[0], "look", {}).result()["hidden"]
        assert look.any() and sessions[0].steps == 2


def test_sessions_lie_on_the_devices_in_turn(folder) -> None:
    devices = jax.local_devices()[:2]
    manager = Manager(
        [ModelConfig("decoder", str(folder))],
        devices=devices, warm_up=False, poll_seconds=0, cache=None,
    )  # fmt: skip
    manager.start()
    with manager.use("decoder") as servable:
        sessions = [manager.sessions.open(servable, "step") for _ in range(3)]
    for number, session in enumerate(sessions):
        found = steps(session, manager.sessions, "step", [number], 3)
        assert alike(found, local("step", [number]))
        assert session.state._state["hidden"].devices() == {devices[number % 2]}
    assert manager.close(timeout=60)


def test_a_recorded_request_compiles_a_signature_that_updates(manager) -> None:
    with manager.use("decoder") as servable:
        servable.run_everywhere("step", {"token": np.int32([1])})
        assert not servable.run("look", {})["hidden"].any()
        with pytest.raises(Failure, match="INVALID_ARGUMENT"):
            servable.run_everywhere("step", {})


def test_random_numbers_of_sessions(manager) -> None:
    table = manager.sessions
    with manager.use("decoder") as servable:
        same, other, again = (
            table.open(servable, "draw", seed=seed) for seed in (None, 2**63, 2**63)
        )
    assert same.signature == "draw"
    saved = steps(same, table, "draw", [1], 12)
    assert alike(saved, local("draw", [1])) and alike(saved, local("draw", [1], seed=5))
    drawn = steps(other, table, "draw", [1], 12)
    assert alike(drawn, local("draw", [1], seed=2**63))
    assert not alike(drawn, local("draw", [1]))
    assert alike(steps(again, table, "draw", [1], 12), local("draw", [1], seed=2**63))


def test_a_step_that_fails_leaves_the_state(manager, monkeypatch) -> None:
    table = manager.sessions
    with manager.use("decoder") as servable:
        session = table.open(servable, "step")
    found = steps(session, table, "step", [1], 2)
    for inputs in ({"token": np.int32([1, 2])}, {"token": np.float32([1])}, {}):
        with pytest.raises(Failure, match="INVALID_ARGUMENT"):
            table.run(session, "step", inputs).result()

    point = session.state._model.signatures["step"]

    def fails(*args):
        raise jax.errors.JaxRuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(point, "_chain", FailingChain(point._chain, fails))
        with pytest.raises(Failure, match="INTERNAL"):
            table.run(session, "step", {"token": np.int32([1])}).result()
    assert session.steps == 2 and not session.state.is_lost
    found += [table.run(session, "step", {"token": found[-1]["next"]}).result() for _ in range(2)]
    assert alike(found, local("step", [1]))


class FailingChain:
    """The programs of an entry point whose run fails."""

    def __init__(self, chain, fails) -> None:
        self._chain, self._fails = chain, fails

    def choose(self) -> str:
        return self._chain.choose()

    def step(self, shapes):
        return self._chain.step(shapes)._replace(compiled=self._fails)


def test_a_run_that_consumed_the_state_ends_the_session(manager, monkeypatch) -> None:
    table = manager.sessions
    with manager.use("decoder") as servable:
        id = table.open(servable, "step").id
    session = table.enter("decoder", id).result()
    state = session.state._state

    def consumes(*args, **inputs):
        state.consume("a run that failed")
        raise RuntimeError("the device is gone")

    with monkeypatch.context() as patch:
        patch.setattr(type(session.state._model.signatures["step"]), "__call__", consumes)
        with pytest.raises(Failure, match="INTERNAL"):
            table.run(session, "step", {"token": np.int32([1])}).result()
    table.leave(session)
    with pytest.raises(Failure, match="left no state"):
        table.find("decoder", id)


def test_a_version_stays_while_it_has_sessions(tmp_path) -> None:
    folder = tmp_path / "decoder"
    put(folder, 1)
    limits = SessionConfig(max_sessions=2)
    manager = Manager(
        [ModelConfig("decoder", str(folder))], sessions=limits, poll_seconds=0, cache=None
    )
    manager.start()
    table = manager.sessions
    with manager.use("decoder") as servable:
        session = table.open(servable, "step")
    found = steps(session, table, "step", [1], 2)
    put(folder, 2, scale=2.0)
    manager.poll()
    with manager.use("decoder") as servable:
        assert servable.version == 2
        new = table.open(servable, "step")
    assert {row.version: row.state for row in manager.status("decoder")} == {
        2: "AVAILABLE", 1: "UNLOADING",
    }  # fmt: skip
    found += [table.run(session, "step", {"token": found[-1]["next"]}).result()]
    assert alike(found, local("step", [1]))
    assert alike(steps(new, table, "step", [1], 3), local("step", [1], scale=2.0))
    table.end("decoder", session.id)
    while manager.status("decoder", 1)[0].state != "END":
        pass
    assert manager.close(timeout=60)  # the other session is ended
    assert len(table) == 0 and new.end == "shutdown"

"""Which calls run directly in the event loop."""

from concurrent.futures import Future

import numpy as np

from graphc.serving.endpoints.direct import Direct
from graphc.serving.endpoints.metrics import Metrics
from graphc.serving.endpoints.rest import RestApplication
from graphc.serving.endpoints.service import Service
from graphc.web.failures import Failure
from tests.serving.fakes import Entry, FakeManager, FakeServable, ask


def test_short_calls_run_in_the_event_loop() -> None:
    direct = Direct()
    assert not direct.is_short("a")
    direct.handed_over("a", 0.02)
    assert not direct.is_short("a")
    direct.handed_over("a", 0.009)
    direct.handed_over("a", 0.02)  # it waited for a thread
    assert direct.is_short("a") and not direct.is_short("b")
    for seconds in (0.1, 0.1, 0.0001, 0.1, 0.1):  # the machine is busy
        direct.ran_here("a", seconds)
        assert direct.is_short("a")


def test_long_calls_go_back_to_threads() -> None:
    direct = Direct()
    direct.handed_over("a", 0.005)
    for _ in range(3):
        assert direct.is_short("a")
        direct.ran_here("a", 0.005)
    assert not direct.is_short("a")
    direct.handed_over("a", 0.005)
    assert not direct.is_short("a")
    direct.handed_over("a", 0.0005)
    assert direct.is_short("a")


def test_the_event_loop_is_tried_again_ever_less_often() -> None:
    direct = Direct()
    direct.handed_over("a", 0.005)
    pauses = []
    for _ in range(3):
        for _ in range(3):
            assert direct.is_short("a")
            direct.ran_here("a", 0.005)
        pauses.append(0)
        while not direct.is_short("a"):
            direct.handed_over("a", 0.02)
            pauses[-1] += 1
    assert pauses == [16, 32, 64]
    direct.ran_here("a", 0.0001)  # the machine is not busy any more
    for _ in range(3):
        direct.ran_here("a", 0.005)
    for _ in range(16):
        direct.handed_over("a", 0.02)
    assert direct.is_short("a")


def test_the_number_of_keys_is_bounded() -> None:
    direct = Direct()
    for number in range(10_000):
        direct.handed_over(number, 0.0)
    assert not direct.is_short(0) and direct.is_short(9_999)


class Servable(FakeServable):
    """Counts its calls."""

    name = "m"
    here = handed = 0

    def run(self, signature: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.here += 1
        if inputs["x"][0] < 0:
            raise Failure("INVALID_ARGUMENT", "negative")
        return {"y": inputs["x"]}

    def predict(self, signature, inputs, deadline=None) -> Future:
        self.handed += 1
        return super().predict(signature, inputs, deadline)


def test_short_calls_run_here_after_the_first(monkeypatch) -> None:
    # The clock does not move, so every call appears to take no time.
    monkeypatch.setattr("graphc.serving.endpoints.service.time.perf_counter", lambda: 0.0)
    entry = Entry({"x": "f32[n]"}, {"y": "f32[n]"})
    servable = Servable(1, {"f": (entry, lambda inputs: {"y": inputs["x"]})})
    service = Service(FakeManager(m=servable), Metrics(), direct=True)
    application = RestApplication(service)
    for values in ([1, 2], [3, 4], [-1, 0], [1]):
        reply = ask(application, "POST", "/v1/models/m:predict", {"instances": values})
        assert reply.status == (400 if values[0] < 0 else 200)
    assert (servable.here, servable.handed) == (2, 2)  # the first call of each size ran in a thread

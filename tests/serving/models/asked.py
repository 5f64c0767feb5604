"""Requests and queries for tests of the manager."""

import numpy as np
import pytest

from graphc.serving.models.manager import Manager
from graphc.web.failures import Failure
from tests.serving.models.saved import X, expected


def states(manager: Manager, name: str = "m") -> dict[int, str]:
    for thread in list(manager._updater.draining):
        thread.join(60)
    return {status.version: status.state for status in manager.status(name)}


def predict(manager: Manager, **which) -> np.ndarray:
    with manager.use("m", **which) as servable:
        return servable.predict("predict", {"x": X}).result(60)["y"]


def check(manager: Manager, value: float, **which) -> None:
    np.testing.assert_array_equal(predict(manager, **which), expected(value))


def refused(manager: Manager, **which) -> Failure:
    with pytest.raises(Failure) as info, manager.use("m", **which):
        pass
    return info.value

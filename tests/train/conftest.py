"""Small jobs for the tests of training loops."""

import numpy as np
import optax
import pytest

import graphc as gc


class Small:
    """A scalar `w` moves towards the fed `x`, so that steps are cheap and their order matters."""

    def __init__(self, optimizer=None):
        self.graph = gc.Graph(seed=0)
        with self.graph:
            self.x = gc.placeholder((None,), name="x")
            self.w = gc.variable(1.0, name="w")
            self.loss = gc.reduce_mean(gc.square(self.w - self.x), name="loss")
            self.double = self.loss * 2
            self.train = gc.minimize(self.loss, optimizer or optax.sgd(0.1))

    def job(self, batches, **options):
        options.setdefault("metrics", {"loss": self.loss})
        return gc.train.Job(self.graph, self.train, batches, **options)

    def session(self, **options):
        return gc.Session(self.graph, **options)


def batches(n, size=2):
    return [{"x": np.full(size, i, "f4")} for i in range(n)]


@pytest.fixture
def small():
    return Small()

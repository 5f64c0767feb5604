"""The tensor-parallel example on a mesh of four devices, compared with one device."""

from __future__ import annotations

import sys
from itertools import islice

import pytest
import tensor_parallel

import graphc as gc
from tests.near import assert_near

MESH = gc.devices.Mesh({"data": 2, "model": 2})


def losses(session: gc.Session, job: gc.train.Job, steps: int) -> list[float]:
    fetches = [job.train, job.metrics["loss"]]
    return [float(session.run(fetches, feeds)[1]) for feeds in islice(job.batches, steps)]


@pytest.mark.one_jax
def test_a_mesh_trains_as_one_device() -> None:
    found = {}
    for strategy in (None, MESH):
        job = tensor_parallel.build(blocks=1, width=16, heads=2, batch=16, dtype="float64")
        session = gc.Session(job.graph, strategy=strategy)
        found[strategy] = losses(session, job, 10)
    assert_near(found[MESH], found[None], rtol=1e-9)
    assert found[None][-1] < found[None][0]
    lies = tensor_parallel.places(session)
    assert lies["block0/attention/query/kernel"] == ((16, 16), (16, 8))
    assert lies["block0/attention/out/kernel"] == ((16, 16), (8, 16))
    assert lies["block0/contract/bias"] == ((16,), (16,))


@pytest.mark.slow
def test_it_runs_as_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tensor_parallel.py", "--steps", "60"])
    tensor_parallel.main()
    shown = capsys.readouterr().out
    assert "block0/expand/kernel              (32, 128)        (32, 64)\n" in shown
    assert "out/kernel                         (32, 10)        (32, 10)\n" in shown
    assert float(shown.split("test accuracy ")[1]) > 0.7

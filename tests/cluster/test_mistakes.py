"""Mistakes that need several processes: each process gets an error, and none waits forever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.launched import SCRIPTS, launched


@pytest.mark.slow
def test_errors(tmp_path: Path) -> None:
    ended = launched("-n", 2, "--devices", 2, SCRIPTS / "disagree.py", cache=tmp_path)
    assert ended.status == 0, ended.errors
    first, second = (
        dict(line.split(": ", 1) for line in ended.results(worker)) for worker in range(2)
    )
    for errors in (first, second):
        for name, texts in {
            "shapes": ("ClusterError", "x (4, 2)", "x (8, 2)", "the same shapes"),
            "fetches": ("ClusterError", "do not compile the same program"),
            "seeds": ("ClusterError", "different values of a variable", "gc.Graph(seed=...)"),
            "uneven": ("FeedError", "3 rows", "the 2 devices of this process"),
            "some": ("DeviceError", "2 of process 0, 1 of process 1"),
            "jit": ("DeviceError", "jit: the strategy has devices of other processes"),
            "set": ("ClusterError", "different values of a variable"),
            "turns": ("do not run the same program", "x (4, 2)", "x (8, 2)"),
            "interleaved": ("DeviceError", "feed 'x'", "are not consecutive"),
            "workers": ("DeviceError", "is a device of another process"),
            "epochs": ("do not run the same steps", "epoch: 2 in process 0, 1 in process 1"),
            "validation": ("ClusterError", "validation: 2 in process 0, 1 in process 1"),
            "others": ("do not do the same", "compiles a program", "sets variables"),
            "again": ("ClusterError", "has joined as"),
        }.items():
            assert all(text in errors[name] for text in texts), errors[name]
        assert errors["names"] == errors["right"] == errors["mesh"] == "no error"
    assert "process 1 has not come within 1 s" in first["late"]

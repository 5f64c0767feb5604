"""Runs the files in `archives` and compares with what PyTorch computed, which is stored there.

As a program, it does so without PyTorch: put a `torch` that cannot be imported first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import graphc as gc
from tests.near import assert_near

HERE = Path(__file__).parent / "archives"
NAMES = sorted(path.stem for path in HERE.glob("*.pt2"))


def check(name: str) -> None:
    """Compares all results, and the buffers that a pass has changed."""
    stored = np.load(HERE / f"{name}.npz")
    alone = gc.import_model(HERE / f"{name}.pt2").to_graph()
    (x,) = alone.inputs.values()
    wanted = [stored[key] for key in stored if key.startswith("output_")]
    outputs = dict(zip(alone.outputs, wanted, strict=True))
    with gc.Session(alone.graph) as session:
        found, _ = session.run([dict(alone.outputs), alone.updates], {x: stored["x"]})
        for key, want in outputs.items():
            got = np.asarray(found[key]).astype(want.dtype)
            assert got.shape == want.shape
            assert_near(got, want, rtol=1e-5, atol=1e-6)
        for key in stored:
            buffer = key.removeprefix("after ")
            if buffer != key and buffer in alone.variables:
                assert_near(np.asarray(session.get(buffer)), stored[key], rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    for each in NAMES:
        check(each)
    assert not [name for name in sys.modules if name.split(".")[0] in ("torch", "sympy")]
    sys.stdout.write(" ".join(NAMES))

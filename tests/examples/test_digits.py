"""The examples on real data, on one device and on four devices."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import digits
import digits_cnn
import digits_mlp
import numpy as np
import optax
import pytest

import graphc as gc

EXAMPLES = Path(digits.__file__).parent


def comparable(dtype: str = "float32"):
    """The CNN with plain adam and without dropout, whose streams differ by device."""
    return digits_cnn.build(dtype=dtype, dropout=False, tx=optax.adam(2e-3))


def weights_after(job, steps: int, devices: int) -> dict[str, np.ndarray]:
    """Every variable after the given number of steps on the job's batches."""
    strategy = gc.devices.DataParallel(devices) if devices > 1 else None
    session = gc.Session(job.graph, strategy=strategy)
    for feeds in islice(job.batches, steps):
        session.run(job.train, feeds)
    return session.values()


def furthest(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> float:
    """The largest difference of any element of any variable."""
    assert a.keys() == b.keys()
    return max(float(np.max(np.abs(a[name] - b[name]))) for name in a)


@pytest.mark.slow
@pytest.mark.one_jax
def test_one_device_equals_four_in_float64_over_200_steps() -> None:
    one = weights_after(comparable("float64"), 200, 1)
    four = weights_after(comparable("float64"), 200, 4)
    assert furthest(one, four) < 1e-9


@pytest.mark.slow
def test_one_device_equals_four_in_float32_over_20_steps() -> None:
    one = weights_after(comparable(), 20, 1)
    four = weights_after(comparable(), 20, 4)
    assert furthest(one, four) < 1e-4


def summed(job):
    """The same job with the sum of the losses instead of their mean."""
    graph = job.graph
    with graph:
        losses = graph.node("loss").inputs[0]
        total = gc.reduce_sum(losses, name="total")
        train = gc.minimize(total, optax.adam(2e-3), name="train_sum")
    return gc.train.Job(graph, train, job.batches, job.steps, {"loss": total})


@pytest.mark.slow
def test_a_summed_loss_agrees_too() -> None:
    one = weights_after(summed(comparable("float64")), 50, 1)
    four = weights_after(summed(comparable("float64")), 50, 4)
    assert furthest(one, four) < 1e-9


@pytest.mark.slow
def test_two_thousand_steps_in_a_row_on_four_devices() -> None:
    job = digits_cnn.build(batch=32, tx=optax.adam(1e-3))
    session = gc.Session(job.graph, strategy=gc.devices.DataParallel(4))
    history = gc.train.fit(session, job, steps=2000, progress=False)
    assert np.all(np.isfinite(history.metrics["loss"]))
    assert job.evaluate(session)["test accuracy"] > 0.97
    assert session.compile_count == 2  # the step, and the evaluation


@pytest.mark.parametrize("devices", [1, 4])
def test_the_mlp_learns(devices: int) -> None:
    job = digits_mlp.build()
    strategy = gc.devices.DataParallel(devices) if devices > 1 else None
    session = gc.Session(job.graph, strategy=strategy)
    gc.train.fit(session, job, progress=False)
    assert job.evaluate(session)["test accuracy"] > 0.95


def run_example(name: str, *arguments: str) -> str:
    """The output of an example that is run as a user runs it."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def figure(output: str, label: str) -> float:
    """The number after `label` in an example's output."""
    line = next(line for line in output.splitlines() if label in line)
    return float(line.split(label)[1].split()[0])


@pytest.mark.slow
def test_digits_cnn_as_a_script() -> None:
    assert figure(run_example("digits_cnn.py", "--steps", "150"), "test accuracy") > 0.93


@pytest.mark.one_jax
def test_digits_mlp_as_a_script() -> None:
    output = run_example("digits_mlp.py", "--devices", "4", "--steps", "100")
    assert figure(output, "test accuracy") > 0.9


@pytest.mark.one_jax
def test_save_and_load_as_a_script() -> None:
    output = run_example("save_and_load.py")
    from_file, in_session = figure(output, "loss"), figure(output, "from the file,")
    assert from_file == in_session
    assert figure(output, "test accuracy") > 0.9


def test_the_demo_reaches_what_it_promises() -> None:
    output = run_example("demo.py")
    assert figure(output, "test accuracy") >= 0.98
    assert "the same in the new process" in output

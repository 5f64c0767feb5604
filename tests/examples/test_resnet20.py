"""ResNet-20 compared with the same network in plain JAX, and whether it learns."""

from functools import partial
from itertools import islice

import jax
import numpy as np
import optax
import pytest
import resnet20
from jax import lax
from jax import numpy as jnp

import graphc as gc
from tests.near import assert_near

STEPS = 20
SIZES = {"width": 4, "size": 8, "batch": 16}


def conv(x, kernel, stride=1):
    dimensions = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=dimensions
    )


def batch_norm(p, averages, x, name):
    """Normalizes with batch statistics; adds the new moving averages to `averages`."""
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    for what, new in (("mean", mean), ("variance", variance)):
        averages[f"{name}/{what}"] = 0.9 * p[f"{name}/{what}"] + 0.1 * new
    x = (x - mean) / jnp.sqrt(variance + 1e-5)
    return x * p[f"{name}/scale"] + p[f"{name}/offset"]


def network(p, x):
    """The logits, and the moving averages after this batch."""
    averages = {}
    h = jax.nn.relu(batch_norm(p, averages, conv(x, p["resnet/conv/kernel"]), "resnet/norm"))
    for stage in range(3):
        for i in range(3):
            at = f"resnet/stage{stage}_block{i}"
            stride = 2 if stage > 0 and i == 0 else 1
            y = conv(h, p[f"{at}/conv1/kernel"], stride)
            y = jax.nn.relu(batch_norm(p, averages, y, f"{at}/norm1"))
            y = batch_norm(p, averages, conv(y, p[f"{at}/conv2/kernel"]), f"{at}/norm2")
            if stride == 2:
                h = conv(h, p[f"{at}/shortcut/kernel"], stride)
            h = jax.nn.relu(h + y)
    return h.mean((1, 2)) @ p["resnet/out/kernel"] + p["resnet/out/bias"], averages


def loss_of(trained, averages, x, y):
    logits, new = network({**trained, **averages}, x)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
    return losses.mean(), new


@pytest.mark.slow
def test_the_training_step_equals_the_same_in_jax() -> None:
    tx = resnet20.optimizer(STEPS, highest=0.01)  # larger steps amplify rounding errors
    job = resnet20.build(**SIZES, tx=tx)
    session = gc.Session(job.graph)
    model = {name: v for name, v in job.graph.variables.items() if name.startswith("resnet/")}
    model = {name: v for name, v in model.items() if "/train/" not in name}
    averages = {n: np.array(session.get(n)) for n, v in model.items() if not v.trainable}
    trained = {n: np.array(session.get(n)) for n, v in model.items() if v.trainable}
    opt_state = tx.init(trained)

    @partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # compiles faster
    def step(trained, averages, opt_state, x, y):
        slope = jax.value_and_grad(loss_of, has_aux=True)
        (loss, averages), slopes = slope(trained, averages, x, y)
        updates, opt_state = tx.update(slopes, opt_state, trained)
        return optax.apply_updates(trained, updates), averages, opt_state, loss

    for feeds in islice(job.batches, STEPS):
        _, mine = session.run([job.train, job.metrics["loss"]], feeds)
        trained, averages, opt_state, loss = step(trained, averages, opt_state, **feeds)
        assert float(mine) == pytest.approx(float(loss), abs=1e-4)
    for name, value in {**trained, **averages}.items():
        assert_near(session.get(name), value, rtol=1e-7, atol=1e-4, err_msg=name)


def test_it_has_as_many_layers_and_weights_as_in_the_paper() -> None:
    variables = resnet20.build().graph.variables.values()
    trainable = [v for v in variables if v.trainable]
    deep = [v for v in trainable if v.name.endswith("kernel") and "shortcut" not in v.name]
    assert len(deep) == 20
    assert round(sum(np.prod(v.type.shape) for v in trainable) / 1e6, 2) == 0.27


def test_it_learns(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "--steps 60 --blocks 1 --width 8 --size 16"
    resnet20.main(arguments.split())
    output = capsys.readouterr().out
    assert "resnet8: " in output
    assert float(output.split("test accuracy ")[1].split()[0]) > 0.8

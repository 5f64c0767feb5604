"""The networks of networks.py in TensorFlow: functions of tf.nn over variables, NHWC.

They use TensorFlow's fused kernels for batch norm and the optimizers, and no Keras, so that only
TensorFlow itself is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.networks import CONVS, EPSILON, MOMENTUM, STAGES, Network, Stages, start

Variables = dict[str, tf.Variable]
Model = Callable[[Variables, Variables, tf.Tensor], tf.Tensor]


def _conv(x: tf.Tensor, w: tf.Variable, stride: int, padding: int) -> tf.Tensor:
    return tf.nn.conv2d(x, w, stride, _sides(padding))


def _sides(padding: int) -> list[list[int]]:
    sides = [padding, padding]
    return [[0, 0], sides, sides, [0, 0]]


def _dense(x: tf.Tensor, params: Variables, name: str) -> tf.Tensor:
    return tf.nn.bias_add(x @ params[f"{name}/kernel"], params[f"{name}/bias"])


def _batch_norm(x: tf.Tensor, params: Variables, averages: Variables, name: str) -> tf.Tensor:
    scale, offset = params[f"{name}/scale"], params[f"{name}/offset"]
    y, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, epsilon=EPSILON)
    for part, value in (("mean", mean), ("variance", variance)):
        kept = averages[f"{name}/{part}"]
        kept.assign_sub((1 - MOMENTUM) * (kept - value))
    return y


def resnet50(
    params: Variables, averages: Variables, x: tf.Tensor, stages: Stages = STAGES
) -> tf.Tensor:
    def unit(x: tf.Tensor, name: str, stride: int = 1) -> tf.Tensor:
        w = params[f"{name}/conv/kernel"]
        return _batch_norm(_conv(x, w, stride, w.shape[0] // 2), params, averages, f"{name}/norm")

    # TensorFlow's XLA rejects padding in the pool. After relu, zeros have the same effect.
    h = tf.pad(tf.nn.relu(unit(x, "stem", 2)), _sides(1))
    h = tf.nn.max_pool2d(h, 3, 2, "VALID")
    for stage, (_, blocks) in enumerate(stages):
        for block in range(blocks):
            name = f"stage{stage}_block{block}"
            y = tf.nn.relu(unit(h, f"{name}/a"))
            stride = 2 if stage and not block else 1
            y = tf.nn.relu(unit(y, f"{name}/b", stride))
            y = unit(y, f"{name}/c")
            h = tf.nn.relu(y + (h if block else unit(h, f"{name}/d", stride)))
    return _dense(tf.reduce_mean(h, (1, 2)), params, "out")


def alexnet(params: Variables, averages: Variables, x: tf.Tensor) -> tf.Tensor:
    for i, (_, _, stride, padding, pooled) in enumerate(CONVS):
        x = _conv(x, params[f"conv{i}/kernel"], stride, padding)
        x = tf.nn.relu(tf.nn.bias_add(x, params[f"conv{i}/bias"]))
        x = tf.nn.max_pool2d(x, 3, 2, "VALID") if pooled else x
    x = tf.reshape(x, (x.shape[0], -1))
    for i in range(2):
        x = tf.nn.relu(_dense(x, params, f"dense{i}"))
    return _dense(x, params, "out")


def mlp(params: Variables, averages: Variables, x: tf.Tensor) -> tf.Tensor:
    return _dense(tf.nn.relu(_dense(x, params, "hidden")), params, "out")


MODELS: dict[str, Model] = {"resnet50": resnet50, "alexnet": alexnet, "mlp": mlp}

Update = Callable[[list[tf.Tensor]], None]


def momentum(variables: list[tf.Variable]) -> Update:
    sums = [tf.Variable(tf.zeros_like(v)) for v in variables]

    def update(slopes: list[tf.Tensor]) -> None:
        for v, kept, slope in zip(variables, sums, slopes, strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=v.handle, accum=kept.handle, lr=0.01, grad=slope, momentum=0.9
            )

    return update


def adam(variables: list[tf.Variable]) -> Update:
    kept = [(tf.Variable(tf.zeros_like(v)), tf.Variable(tf.zeros_like(v))) for v in variables]
    decays = (0.9, 0.999)
    powers = [tf.Variable(decay) for decay in decays]

    def update(slopes: list[tf.Tensor]) -> None:
        for v, (m, n), slope in zip(variables, kept, slopes, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=v.handle,
                m=m.handle,
                v=n.handle,
                beta1_power=powers[0],
                beta2_power=powers[1],
                lr=1e-3,
                beta1=decays[0],
                beta2=decays[1],
                epsilon=1e-8,
                grad=slope,
            )
        for power, decay in zip(powers, decays, strict=True):
            power.assign(power * decay)

    return update


def step(
    model: Model, network: Network, x: Any, y: Any, steps: int, compiled: bool
) -> Callable[[], float]:
    """`steps` training steps by tf.function. The function returns the loss of the first step.

    Args:
        compiled: whether XLA compiles the step (`jit_compile=True`).
    """
    params, averages = (
        {name: tf.Variable(np.array(value)) for name, value in values.items()}
        for values in start(network)
    )
    variables = list(params.values())
    update = (adam if network.graph.name == "mlp" else momentum)(variables)
    images, labels = tf.constant(x), tf.constant(y)

    @tf.function(jit_compile=compiled or None)
    def train(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = model(params, averages, images)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        update(tape.gradient(loss, variables))
        return loss

    def run() -> float:
        first = None
        for _ in range(steps):
            loss = train(images, labels)
            first = loss if first is None else first
        loss.numpy()
        return float(first.numpy())

    return run


def forms(name: str, network: Network, x: Any, y: Any, steps: int) -> dict[str, Any]:
    """The step as TensorFlow runs it, and as its XLA compiles it."""
    return {
        what: step(MODELS[name], network, x, y, steps, compiled)
        for what, compiled in (("tf.function", False), ("jit_compile", True))
    }

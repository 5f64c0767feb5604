"""Makes the files of this folder with TensorFlow: a convolutional network in the style of 2017.

python examples/tf1_digits/make_model.py

It reads batches from a queue, has reference variables, `tf.cond`, dropout and Adam, and is only
trained for a short time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

v1 = tf.compat.v1


def weights(name: str, *shape: int) -> Any:
    start = v1.truncated_normal_initializer(stddev=0.1, seed=1)
    return v1.get_variable(name, shape, initializer=start, use_resource=False)


def network(images: Any, training: Any) -> Any:
    with v1.variable_scope("conv1"):
        h = tf.nn.conv2d(images, weights("weights", 3, 3, 1, 8), [1, 1, 1, 1], "SAME")
        h = tf.nn.max_pool2d(tf.nn.relu(tf.nn.bias_add(h, weights("biases", 8))), 2, 2, "SAME")
    with v1.variable_scope("fc1"):
        h = tf.reshape(h, [tf.shape(h)[0], 4 * 4 * 8])
        h = tf.nn.relu(tf.matmul(h, weights("weights", 128, 32)) + weights("biases", 32))
    h = v1.cond(training, lambda: tf.nn.dropout(h, rate=0.25), lambda: h)
    with v1.variable_scope("softmax"):
        return v1.nn.xw_plus_b(h, weights("weights", 32, 10), weights("biases", 10), name="logits")


def main() -> None:
    import digits

    data = digits.load()
    v1.disable_eager_execution()
    v1.disable_control_flow_v2()
    v1.set_random_seed(0)
    queue = v1.FIFOQueue(64, [tf.float32, tf.int32], [[8, 8, 1], []], name="input/queue")
    pixels, numbers = v1.placeholder(tf.float32), v1.placeholder(tf.int32)
    enqueue = queue.enqueue_many([tf.reshape(pixels, [-1, 8, 8, 1]), numbers], name="input/fill")
    images, labels = queue.dequeue_up_to(32, name="input/batch")
    training = v1.placeholder_with_default(False, [], name="training")
    logits = network(images, training)
    tf.nn.softmax(logits, name="probabilities")
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits), name="loss"
    )
    step = v1.train.get_or_create_global_step()
    v1.train.AdamOptimizer(1e-3).minimize(loss, global_step=step, name="train")
    saver = v1.train.Saver()
    order = np.random.default_rng(0).permutation(len(data["x_train"]))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for batch in order[: len(order) // 32 * 32].reshape(-1, 32):
            feed = {pixels: data["x_train"][batch], numbers: data["y_train"][batch]}
            session.run(enqueue, feed)
            session.run("train", {training: True})
        saver.save(session, str(FOLDER / "model.ckpt"), write_state=False)


if __name__ == "__main__":
    main()

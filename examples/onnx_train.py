"""An ONNX model is trained further, saved and served from the file.

python examples/onnx_train.py

The script makes the model with random weights, as any tool could export it. Its initializers become
variables with the same names; graphc adds the training step. The saved file needs neither ONNX nor
this script. Needs the extra `onnx`.
"""

from __future__ import annotations

import argparse
from typing import Any

import digits
import numpy as np
import optax

import graphc as gc


def exported() -> Any:
    """A convolutional network in ONNX, channels first, with random weights."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = {
        "conv.weight": rng.normal(size=(16, 1, 3, 3)) * 0.3,
        "conv.bias": np.zeros(16),
        "fc.weight": rng.normal(size=(10, 256)) * 0.06,
        "fc.bias": np.zeros(10),
    }
    nodes = [
        helper.make_node("Conv", ["images", "conv.weight", "conv.bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "fc.weight", "fc.bias"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(v.astype(np.float32), name) for name, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", default="digits.gcx")
    options = parser.parse_args()
    data = digits.load()
    train_images, test_images = (data[name].reshape(-1, 1, 8, 8) for name in ("x_train", "x_test"))
    graph = gc.Graph(seed=0)
    with graph:
        images = gc.placeholder(("batch", 1, 8, 8), name="images")
        labels = gc.placeholder(("batch",), "int32", name="labels")
        logits = gc.from_onnx(exported(), trainable=True)(images)
        loss = gc.reduce_mean(gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=labels))
        train = gc.minimize(loss, optax.adam(3e-3), name="train")
    batches = iter(gc.data.Batches({"images": train_images, "labels": data["y_train"]}, 64, seed=1))
    with gc.Session(graph) as session:
        for _ in range(options.steps):
            session.run(train, next(batches))
        found = np.argmax(session.run(logits, {images: test_images}), axis=-1)
        print(f"test accuracy {np.mean(found == data['y_test']):.4f}")
        signature = gc.Signature({"images": images}, {"logits": logits})
        gc.save(session, options.out, signatures={"predict": signature})
    loaded = gc.load(options.out).signatures["predict"](images=test_images)["logits"]
    print(
        f"saved to {options.out}; the same results: {np.array_equal(np.argmax(loaded, -1), found)}"
    )


if __name__ == "__main__":
    main()

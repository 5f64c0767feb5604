"""A torchvision ResNet is trained on four devices, and its values return to the module.

python examples/torch_fine_tune.py

The module has random weights here, since nothing is downloaded; other weights work in the same way.
`gc.from_torch` makes a layer whose variables have the names of the `state_dict`. The training step
runs on several devices (virtual ones on a CPU), including the moving averages of batch norm. At the
end the values are loaded into a new module, which gives the same results.
Needs torch and torchvision.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import islice

import digits
import numpy as np
import optax
import several_devices

import graphc as gc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--devices", type=int, default=4)
    options = parser.parse_args()
    devices = several_devices.most(options.devices)  # before anything uses JAX

    import torch
    import torchvision

    warnings.simplefilter("ignore")  # of torch.export
    torch.manual_seed(0)
    data = digits.load()
    images_of = {
        part: np.repeat(data[f"x_{part}"].reshape(-1, 1, 8, 8), 3, axis=1).repeat(4, 2).repeat(4, 3)
        for part in ("train", "test")
    }
    module = torchvision.models.resnet18(weights=None, num_classes=10)
    batch = torch.export.Dim("batch", min=2, max=4096)
    example = (torch.zeros(4, 3, 32, 32),)
    shapes = ({0: batch},)
    graph = gc.Graph(seed=0)
    with graph:
        images = gc.placeholder(("batch", 3, 32, 32), name="images")
        labels = gc.placeholder(("batch",), "int32", name="labels")
        network = gc.from_torch(module, example, dynamic_shapes=shapes, training=True)
        logits = network(images)
        loss = gc.reduce_mean(gc.nn.sparse_softmax_cross_entropy(logits=logits, labels=labels))
        train = gc.minimize(loss, optax.adamw(1e-3), name="train")
    batches = gc.data.Batches({"images": images_of["train"], "labels": data["y_train"]}, 64, seed=1)
    with gc.Session(graph, strategy=gc.devices.DataParallel(devices)) as session:
        for feeds in islice(batches, options.steps):
            value = session.run([train, loss], feeds)[1]
        print(f"{options.steps} steps on {devices} devices, last loss {float(value):.4f}")
        trained = {
            name: torch.from_numpy(np.array(session.get(name)))
            for name in module.state_dict()
            if name in graph.variables
        }
    again = torchvision.models.resnet18(weights=None, num_classes=10)
    again.load_state_dict(trained)
    again.eval()
    with torch.no_grad():
        theirs = again(torch.from_numpy(images_of["test"])).numpy()
    print(f"test accuracy of the module: {np.mean(theirs.argmax(-1) == data['y_test']):.4f}")
    alone = gc.from_torch(again, example, dynamic_shapes=shapes).to_graph()
    with gc.Session(alone.graph) as session:
        feeds = {alone.inputs["x"]: images_of["test"]}
        ours = np.asarray(session.run(alone.outputs["output_0"], feeds))
    away = np.abs(ours - theirs).max() / np.abs(theirs).max()
    print(f"largest difference between graphc and PyTorch: {away:.1e}")


if __name__ == "__main__":
    main()

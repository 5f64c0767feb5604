"""Two nodes on two devices, and the log of their placement.

python examples/two_devices.py
"""

from __future__ import annotations

import numpy as np
import several_devices

import graphc as gc


def main() -> None:
    first, second = several_devices.names(2)
    with gc.Graph(name="two_devices") as graph:
        x = gc.placeholder((2, 3), "float32", name="x")
        with gc.device(first):
            kernel = gc.variable(np.ones((3, 2), "float32"), name="kernel")
            product = gc.matmul(x, kernel, name="product")
        with gc.device(second):
            total = gc.reduce_sum(product, name="total")
    session = gc.Session(graph, log_placement=True)
    value = session.run(total, {x: np.arange(6, dtype="float32").reshape(2, 3)})
    print(f"total {float(value):g}, computed on {second}")
    print()
    print(session.executables[0].partition)


if __name__ == "__main__":
    main()

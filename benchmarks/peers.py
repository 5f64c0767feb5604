"""Training networks on CPU compared with PyTorch eager and TensorFlow, if they are installed.

The networks are those of `cpu`, with the same initial values and the same batch. Figures are ratios
to plain JAX. All forms are timed in turn in one run, each library with its own number of threads.
PyTorch's row has the faster of its two memory formats; TensorFlow's row has the faster of
tf.function without and with its XLA.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator

from benchmarks.cpu import GOALS, Row, graphc_network, jax_network, ratios, same_losses
from benchmarks.networks import NETWORKS, data

# The names in rows, by the module that must be installed. The forms are in peers_<module>.py.
PEERS = {"torch": "PyTorch eager", "tensorflow": "TensorFlow"}


def installed() -> list[str]:
    """The modules of PEERS that are installed."""
    return [module for module in PEERS if importlib.util.find_spec(module)]


def rows() -> Iterator[Row]:
    """For each network, a row for each peer. Peers that are not installed give a line on stderr."""
    here = installed()
    for module in PEERS:
        if module not in here:
            print(f"{PEERS[module]} is not installed: no rows", file=sys.stderr)
    for name in GOALS if here else ():
        yield from network_rows(name, here)


def network_rows(name: str, here: list[str]) -> list[Row]:
    """The training step of one network by each installed peer. Losses are compared with JAX's."""
    network, goal = NETWORKS[name](), GOALS[name]
    x, y = data(network, goal.batch)
    steps = {
        "jax": jax_network(network, x, y, goal.steps),
        "O3": graphc_network(network, x, y, goal.steps, "O3"),
    }
    of_peer = {}
    for module in here:
        forms = importlib.import_module(f"benchmarks.peers_{module}").forms
        of_peer[module] = forms(name, network, x, y, goal.steps)
        steps |= of_peer[module]
    same_losses(steps, rtol=1e-3)
    found = ratios(steps, goal.rounds)
    milliseconds = 1e3 * found["seconds"] / goal.steps
    rows = []
    for module, forms in of_peer.items():
        best, *others = sorted(forms, key=found.__getitem__)
        beside = "".join(f"; {form} {found[form]:.2f}x" for form in others)
        rows.append(
            (
                f"{name}, batch {goal.batch}: {PEERS[module]} step to plain JAX "
                f"({milliseconds:.1f} ms)",
                f"{found[best]:.2f}x ({best}{beside})",
                f"graphc O3 {found['O3']:.2f}x, in the same run",
            )
        )
    return rows

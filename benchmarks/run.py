"""`make bench`: every benchmark, as a Markdown table of figures against their targets.

Absolute times depend on the machine; trust the ratios, which are taken side by side in one run.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

DEVICES = 4
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={DEVICES}"
).strip()

# As when an example is run: its neighbours are importable.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import jax

from benchmarks import cnn, small


def main() -> None:
    device = jax.devices()[0]
    print(
        f"{device.device_kind}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"jax {jax.__version__}\n"
    )
    print("| what | measured | target |\n|---|---|---|")
    for rows in (
        cnn.one_device,
        lambda: cnn.replicated(DEVICES),
        small.call_overhead,
        small.building,
    ):
        for row in rows():
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

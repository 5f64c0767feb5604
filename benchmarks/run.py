"""`make bench`: runs every benchmark and prints a Markdown table of figures and their targets.

Absolute times depend on the machine. Rely on the ratios, which are measured in one run.

`python -m benchmarks.run depth` (`make bench BENCH_FLAGS=depth`) is slow: it takes minutes, mostly
because JAX compiles unrolled layers. `depth --unrolled48` takes five minutes more.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from importlib import import_module
from pathlib import Path

DEVICES = 4
GIVEN_FLAGS = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = f"{GIVEN_FLAGS} --xla_force_host_platform_device_count={DEVICES}".strip()

# The examples become importable, as when one of them runs as a script.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import jax

from benchmarks import cnn, depth, run_steps, small

# Parts that take minutes, by the names of their modules. Each runs only if it is named.
NAMED = (
    "precision", "attention", "memory", "peak", "updates", "pipeline", "parallel", "frozen",
    "time_loops", "tuning", "sparse", "cpu", "peers", "gpu", "gpu_hlo", "jit", "jobs", "input",
    "records", "checkpoints", "estimators", "scaling", "serving", "serving_versions", "zoo",
    "jit_steps", "looked_at",
)  # fmt: skip
# Parts that run in their own processes, which have one device.
IN_CHILDREN = (
    "depth",
    "estimators",
    "jit",
    "jobs",
    "scaling",
    "serving",
    "serving_versions",
    "time_loops",
    "zoo",
)


def main() -> None:
    arguments = argparse.ArgumentParser(prog="benchmarks.run", description=__doc__)
    arguments.add_argument("what", nargs="?", default="all", choices=("all", "depth", *NAMED))
    arguments.add_argument("--unrolled48", action="store_true")
    given = arguments.parse_args()
    device = jax.devices()[0]
    print(
        f"{device.device_kind}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"jax {jax.__version__}\n"
    )
    named = import_module(f"benchmarks.{given.what}") if given.what in NAMED else None
    header = getattr(named, "HEADER", ("what", "measured", "target"))
    print(f"| {' | '.join(header)} |\n{'|---' * len(header)}|", flush=True)
    if given.what in IN_CHILDREN:
        os.environ["XLA_FLAGS"] = GIVEN_FLAGS
    if given.what == "depth":
        parts = [lambda: depth.rows(unrolled48=given.unrolled48)]
    elif named is not None:
        parts = [named.rows]
    else:
        parts = [
            cnn.one_device,
            lambda: cnn.replicated(DEVICES),
            small.call_overhead,
            small.many_variables,
            run_steps.rows,
            small.building,
        ]
    for rows in parts:
        for row in rows():
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

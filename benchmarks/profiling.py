"""The cost of profiling, and how well its sums agree with the time of a step.

python benchmarks/profiling.py
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import graphc as gc
from tests.reports.models import LARGE

STEPS = 30
ROUNDS = 5


def main() -> None:
    print("model        devices  plain ms  profiled ms  overhead  sum / step  unattributed")
    for name, make in LARGE.items():
        for devices in (1, 4):
            model = make()
            with model.session(devices) as session:
                rounds = [
                    gc.profile(session, model.fetches, model.feeds, steps=STEPS)
                    for _ in range(ROUNDS)
                ]
            best = min(rounds, key=lambda profile: profile.step_seconds)
            plain = min(profile.plain_seconds for profile in rounds)
            print(
                f"{name:12} {devices:7} {1e3 * plain:9.2f} {1e3 * best.step_seconds:12.2f} "
                f"{100 * (best.step_seconds / plain - 1):8.1f}% "
                f"{best.device_seconds / best.step_seconds:11.3f} "
                f"{best.unattributed_seconds / best.device_seconds:13.4f}"
            )


if __name__ == "__main__":
    main()

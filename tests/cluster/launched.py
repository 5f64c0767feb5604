"""Runs scripts as the processes of a cluster, with `graphc launch`, as users do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
PATIENCE = 300  # seconds until a cluster must have ended; enough for a busy machine


class Ended(NamedTuple):
    """A launch that has ended."""

    status: int
    lines: list[str]
    errors: str

    def results(self, worker: int) -> list[str]:
        """The texts that one worker printed after the word "result". JAX's collectives print lines
        of their own, also within other lines."""
        name, word = f"[worker {worker}] ", "result "
        own = [line for line in self.lines if line.startswith(name) and word in line]
        return [line.partition(word)[2] for line in own]


def launched(*arguments: object, cache: Path | None = None) -> Ended:
    """Runs `graphc launch` with these arguments."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "").replace(
            "--xla_force_host_platform_device_count=4", ""
        ),
        "PYTHONPATH": str(REPOSITORY),
    }
    if cache is not None:
        environment["XDG_CACHE_HOME"] = str(cache)
    done = subprocess.run(
        [sys.executable, "-m", "graphc", "launch", *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return Ended(done.returncode, done.stdout.splitlines(), done.stderr)

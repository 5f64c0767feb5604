"""Faults of a cluster at random moments, under the supervisor of `graphc launch`.

    python -m tests.reliability.cluster_faults ROUNDS SEED FOLDER     writes FOLDER/tally.json

Two processes train the network of `cluster_job`. Then they train it again. Whenever all processes
have made some steps, one of these faults occurs, in turn:

- kill: a process gets SIGKILL: either the one with JAX's coordinator or the other;
- stop: a process gets SIGSTOP;
- raise: a callback of a process raises an error;
- full: no file of the chief may grow, as on a full disk, so that the next checkpoint fails;
- slow: a process is slow until the supervisor names it. Nothing is restarted.

At the end, the parameters and the log must equal those of the first run, bit by bit. The tally
contains the seconds from a failure to the next step of all processes, as the supervisor reports
them, and the largest number of repeated steps.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Thread

from tests.reliability.cluster_job import EVERY

JOB = Path(__file__).with_name("cluster_job.py")
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "",
    "PYTHONPATH": str(Path(__file__).parents[2]),  # the job imports from tests
}
KINDS = ("kill", "stop", "raise", "full", "slow")
BETWEEN = 100  # steps between two faults, on average
PATIENCE = 180.0  # seconds until a fault must be over
SILENCE = 5


class Launched:
    """A launch of the job, and the output of its supervisor."""

    def __init__(self, folder: Path, steps: int, *options: object) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        command = ["-m", "graphc", "launch", "-n", 2, "--devices", 1, *options]
        self.process = subprocess.Popen(
            [sys.executable, *map(str, [*command, JOB, "--", folder, steps])],
            env={**os.environ, **ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self.results: list[str] = []
        pairs = ((self.process.stdout, self.results), (self.process.stderr, self.said))
        self._readers = [Thread(target=self._read, args=pair, daemon=True) for pair in pairs]
        for reader in self._readers:
            reader.start()

    def _read(self, stream, lines: list[str]) -> None:
        with stream:
            lines.extend(line.rstrip() for line in stream)

    def result(self) -> set[str]:
        """The final output of the workers: one text if they agree."""
        status = self.process.wait()
        for reader in self._readers:
            reader.join()
        if status:
            raise RuntimeError("\n".join(self.said[-40:]))
        return {line.partition("result ")[2] for line in self.results if "result " in line}

    def wait_for(self, text: str, since: int) -> None:
        """Waits for a new line of the supervisor that contains this text."""
        end = time.monotonic() + PATIENCE
        while not any(text in line for line in self.said[since:]):
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError(f"no {text!r} after\n" + "\n".join(self.said[-40:]))
            time.sleep(0.05)

    def step(self, ranks: int = 2) -> int:
        """The last step that all processes have made, in this start or an earlier one."""
        found = [self.folder / f"step-{rank}" for rank in range(ranks)]
        return min(int(f.read_text() or 0) if f.exists() else 0 for f in found)

    def wait_for_steps(self, until: int, ranks: int = 2) -> None:
        """Waits until all processes have made this step."""
        while self.step(ranks) < until and self.process.poll() is None:
            time.sleep(0.01)


def attack(launched: Launched, kind: str, rank: int) -> None:
    """Causes one fault, and waits until all processes make steps again."""
    said = len(launched.said)
    asked = launched.folder / f"{kind}-{rank}"
    if kind in ("kill", "stop"):
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[kind]
        os.kill(int((launched.folder / f"pid-{rank}").read_text()), number)
    else:
        asked.touch()
    if kind == "slow":
        launched.wait_for(f"worker {rank} is slow", said)
        asked.unlink()
    else:
        launched.wait_for("all make steps again", said)


def attack_all(rounds: int, seed: int, folder: Path) -> dict[str, object]:
    """Causes faults in one job; returns the tally."""
    rng, tally = random.Random(seed), Counter()
    steps = 3 * BETWEEN * (rounds + 2) // 2  # more than the faults need
    undisturbed = Launched(folder / "undisturbed", steps)
    result = undisturbed.result()
    job = Launched(
        folder / "disturbed", steps, "--restarts", rounds, "--silence", SILENCE, "--grace", 3
    )
    begin = time.monotonic()
    try:
        for number in range(rounds):
            kind = KINDS[number % len(KINDS)]
            rank = 0 if kind == "full" else rng.randrange(2)
            job.wait_for_steps(job.step() + rng.randrange(5, 2 * BETWEEN - 5 if number else 20))
            if job.process.poll() is not None:
                break
            attack(job, kind, rank)
            tally[kind] += 1
        same = job.result() == result and len(result) == 1
    finally:
        job.process.terminate()
    logs = [(folder / name / "log.csv").read_text() for name in ("undisturbed", "disturbed")]
    found = (re.search(r"again, ([\d.]+) s", line) for line in job.said)
    seconds = [float(each[1]) for each in found if each]
    lines = (folder / "disturbed" / "resumed-0").read_text().splitlines()
    return {
        "faults": dict(tally),
        "same parameters": same,
        "same log": logs[0] == logs[1],
        "seconds to the next step": sorted(seconds),
        "repeated steps": max(int(line.split()[1]) for line in lines),
        "checkpoint every": EVERY,
        "minutes": round((time.monotonic() - begin) / 60, 1),
    }


def main() -> None:
    rounds, seed, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    tally = attack_all(rounds, seed, folder)
    (folder / "tally.json").write_text(json.dumps(tally))
    print(json.dumps(tally, indent=1))


if __name__ == "__main__":
    main()

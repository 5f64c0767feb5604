"""What processes that are killed leave behind is whole, or nothing: see `kills`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_killed_writers_leave_whole_files_or_none(
    rounds: Callable[[int, int], int], tmp_path: Path
) -> None:
    number = rounds(5, 200)
    done = subprocess.run(
        [sys.executable, "-m", "tests.reliability.kills", str(number), "0", str(tmp_path)],
        cwd=REPOSITORY,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    tally = json.loads((tmp_path / "tally.json").read_text())
    print(json.dumps(tally))
    assert sum(counts["rounds"] for counts in tally.values()) >= number
    for kind, counts in tally.items():
        assert counts["rounds"] == counts.get("whole", 0) + counts.get("nothing", 0), (kind, counts)
        assert "victims that failed" not in counts, done.stderr
    if number >= 50:  # the attack hit what it aimed at
        assert tally["store"]["killed in mid-write"] > number // 20
        assert all(counts.get("whole", 0) > counts["rounds"] // 2 for counts in tally.values())

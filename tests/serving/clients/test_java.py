"""The Java client: Checks.java."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "clients" / "java" / "graphc" / "serving").glob("*.java"))
CHECKS = Path(__file__).parent / "Checks.java"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.one_jax,
    pytest.mark.skipif(shutil.which("javac") is None, reason="javac is not installed"),
]


def test_the_checks(addresses: dict[str, str], tmp_path: Path) -> None:
    strict = ["javac", "-Xlint:all", "-Werror", "--release", "17", "-encoding", "UTF-8"]
    strict += ["-d", str(tmp_path)]
    subprocess.run([*strict, *map(str, SOURCES), str(CHECKS)], check=True, timeout=300)
    command = ["java", "-cp", str(tmp_path), "Checks"]
    command += [f"{name}={address}" for name, address in addresses.items()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.startswith("ok ")] == [], done.stderr
    assert len(lines) == CHECKS.read_text().count("checks.put(") > 0

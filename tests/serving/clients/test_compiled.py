"""The Java and C++ clients: Checks.java and checks.cpp. Each prints one line per check."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.serving.clients.toolchains import Toolchain, cpp, java

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.one_jax
@pytest.mark.parametrize(
    ("source", "language", "checks"),
    [
        pytest.param("Checks.java", java, 17, marks=java.needed, id="java"),
        pytest.param("checks.cpp", cpp, 17, marks=cpp.needed, id="cpp"),
    ],
)
def test_the_checks(
    source: str, language: Toolchain, checks: int, addresses: dict[str, str], tmp_path: Path
) -> None:
    command = language.build(HERE / source, tmp_path)
    command += [f"{name}={address}" for name, address in addresses.items()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.startswith("ok ")] == [], done.stderr
    assert len(lines) == checks and done.returncode == 0, done.stderr

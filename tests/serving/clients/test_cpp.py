"""The C++ client: checks.cpp."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEADERS = ROOT / "clients" / "cpp"
CHECKS = Path(__file__).parent / "checks.cpp"
CHECK_NAMES = 11


def has_libcurl() -> bool:
    """Whether g++ and libcurl's header (Debian: libcurl4-openssl-dev) are on this machine."""
    if shutil.which("g++") is None:
        return False
    command = ["g++", "-E", "-x", "c++", "-include", "curl/curl.h", "/dev/null"]
    return subprocess.run(command, capture_output=True).returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.one_jax,
    pytest.mark.skipif(not has_libcurl(), reason="g++ or libcurl's header is not installed"),
]


def test_the_checks(addresses: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "checks"
    strict = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    strict += ["-fsanitize=address,undefined", "-fno-sanitize-recover"]
    command = [*strict, f"-I{HEADERS}", str(CHECKS), "-o", str(program), "-lcurl"]
    subprocess.run(command, check=True, timeout=600)
    servers = [f"{name}={address}" for name, address in addresses.items()]
    done = subprocess.run([program, *servers], capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.startswith("ok ")] == []
    assert len(lines) == CHECK_NAMES and done.returncode == 0, done.stderr

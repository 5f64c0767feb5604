"""Compilers for the clients, if they are installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

CLIENTS = Path(__file__).parents[3] / "clients"


class Toolchain(NamedTuple):
    """`build(source, folder)` compiles a file with the client and returns the command to run it."""

    needed: pytest.MarkDecorator
    build: Callable[[Path, Path], list[str]]


def _build_java(source: Path, folder: Path) -> list[str]:
    client = sorted(map(str, (CLIENTS / "java" / "graphc" / "serving").glob("*.java")))
    strict = ["javac", "-Xlint:all", "-Werror", "--release", "17", "-encoding", "UTF-8"]
    subprocess.run([*strict, "-d", folder, *client, source], check=True, timeout=600)
    return ["java", "-cp", str(folder), source.stem]


def _has_libcurl() -> bool:
    if shutil.which("g++") is None:
        return False
    command = ["g++", "-E", "-x", "c++", "-include", "curl/curl.h", "/dev/null"]
    return subprocess.run(command, capture_output=True).returncode == 0


def _build_cpp(source: Path, folder: Path) -> list[str]:
    program = folder / source.stem
    strict = ["-std=c++17", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    strict += ["-fsanitize=address,undefined", "-fno-sanitize-recover"]
    command = ["g++", *strict, f"-I{CLIENTS / 'cpp'}", str(source), "-o", str(program), "-lcurl"]
    subprocess.run(command, check=True, timeout=600)
    return [str(program)]


java = Toolchain(
    pytest.mark.skipif(shutil.which("javac") is None, reason="javac is not installed"),
    _build_java,
)
cpp = Toolchain(
    pytest.mark.skipif(
        not _has_libcurl(), reason="g++ or libcurl's header (libcurl4-openssl-dev) is not installed"
    ),
    _build_cpp,
)

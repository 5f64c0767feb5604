"""`graphc cache`: its output, and errors for invalid input."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from graphc.cli import main
from graphc.cli.report import amount
from graphc.store.folder import ExecutableCache, default_folder

Run = Callable[..., tuple[int, str, str]]
FULL = {
    "program": "mnist",
    "environment": {"devices": "cpu:0 cpu, cpu:1 cpu", "jax": "0.10.2", "graphc": "f" * 64},
    "seconds": {"passes": 0.5, "lower": 0.25, "compile": 2.0},
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `graphc cache ...`: exit code, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        try:
            code = main(["cache", *map(str, arguments)])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def cache(tmp_path: Path) -> ExecutableCache:
    """Three entries: one with little information, a damaged one, and a complete one."""
    cache = ExecutableCache(tmp_path / "compiled", 1 << 20)
    for digit, metadata in zip("abc", ({}, {}, FULL), strict=True):
        cache.put(digit * 64, metadata, b"x" * 5000)
    path = cache.folder / f"{'b' * 64}.executable"
    path.write_bytes(path.read_bytes()[:4000])
    for i, digit in enumerate("cba"):
        when = time.time() - 10_000 * i
        os.utime(cache.folder / f"{digit * 64}.executable", (when, when))
    return cache


def test_list_shows_the_last_used_first(run: Run, cache: ExecutableCache) -> None:
    code, out, err = run("list", "--folder", cache.folder)
    assert (code, err) == (0, "")
    first, titles, *rows = out.splitlines()
    assert first == f"3 entries, {amount(cache.size(), 'B')}, in {cache.folder}"
    assert titles.split() == ["key", "size", "last", "used", "program", "devices", "jax", "saves"]
    size = amount(cache.entries()[0].bytes, "B")
    assert re.split("  +", rows[0].strip()) == [
        *("c" * 12, size, "0 s ago", "mnist", "2 x cpu", "0.10.2", "2.75 s")
    ]
    assert rows[1].endswith("  2 h ago    (unusable)")
    assert rows[2].split()[3:] == ["5", "h", "ago"]


def test_list_for_programs(run: Run, cache: ExecutableCache) -> None:
    facts = json.loads(run("list", "--json", "--folder", cache.folder)[1])
    assert facts["folder"] == str(cache.folder) and facts["bytes"] == cache.size()
    whole, damaged, plain = facts["entries"]
    assert abs(whole.pop("created") - time.time()) < 60
    assert abs(whole.pop("last_used") - time.time()) < 60
    assert whole.pop("bytes") > 5000
    assert whole == {
        "key": "c" * 64,
        "usable": True,
        "program": "mnist",
        "devices": "cpu:0 cpu, cpu:1 cpu",
        "jax": "0.10.2",
        "graphc": "f" * 64,
        "seconds_saved": 2.75,
    }
    assert damaged["usable"] is False and damaged["created"] is None
    assert plain["usable"] is True and plain["seconds_saved"] is None


def test_size_and_clear(run: Run, cache: ExecutableCache) -> None:
    place = ("--folder", cache.folder)
    size, text = cache.size(), amount(cache.size(), "B")
    assert run("size", *place) == (0, f"3 entries, {text}, in {cache.folder}\n", "")
    facts = {"folder": str(cache.folder), "entries": 3, "bytes": size}
    assert json.loads(run("size", "--json", *place)[1]) == facts
    assert run("clear", *place) == (0, f"removed 3 entries, {text}, from {cache.folder}\n", "")
    assert cache.entries() == []
    facts = {"folder": str(cache.folder), "removed": 0, "bytes": 0}
    assert json.loads(run("clear", "--json", *place)[1]) == facts


def test_the_default_folder_need_not_be_there(run: Run) -> None:
    text = f"0 entries, 0 B, in {default_folder()}\n"
    assert run("list") == run("size") == (0, text, "")
    assert run("clear") == (0, f"removed 0 entries, 0 B, from {default_folder()}\n", "")
    assert not default_folder().exists()
    cache = ExecutableCache(default_folder(), 1 << 20)
    cache.put("a" * 64, FULL, b"")
    assert run("size")[1].startswith("1 entry, ")


def test_help_has_an_example(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0 and "example:\n  graphc cache list\n" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", "the following arguments are required: list|clear|size"),
        ("lst", "'lst' is not an action of graphc cache; did you mean 'list'?"),
        ("list clear", "unexpected 'clear'"),
        ("list --foldr x", "did you mean '--folder'?"),
        ("list --folder {folder}/nothing", "no folder '{folder}/nothing'; check the path"),
        (
            "clear --folder {folder}/open",
            "(mode 0755), who could have this process run any program",
        ),
        ("size --folder {folder}/open", "; chmod 700 {folder}/open"),
    ],
)
def test_invalid_input_is_reported_in_one_line(
    run: Run, tmp_path: Path, arguments: str, text: str
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    code, out, err = run(*arguments.format(folder=tmp_path).split())
    assert (code, out) == (2, "")
    assert err.startswith("graphc cache: ") and err.count("\n") == 1
    assert text.format(folder=tmp_path) in err

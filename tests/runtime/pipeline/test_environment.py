"""The second half of the cache key: everything outside the program that affects compilation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from graphc.store import environment as module
from graphc.store.environment import environment, settings
from tests import test_layering as layering

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "context",
    [
        lambda: jax.default_matmul_precision("highest"),
        lambda: jax.enable_x64(True),
        lambda: jax.numpy_dtype_promotion("strict"),
        lambda: jax.debug_nans(True),
        lambda: jax.threefry_partitionable(False),
    ],
)
def test_settings_that_change_numbers_count(context) -> None:
    before = settings()
    with context():
        assert settings() != before
    assert settings() == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_optimization_level", "O1"),
        ("jax_default_prng_impl", "rbg"),
        ("jax_use_shardy_partitioner", False),
        ("jax_disable_most_optimizations", None),  # None: the opposite of the current value
    ],
)
def test_settings_of_the_compiler_count(name: str, value: object) -> None:
    before, old = settings(), jax.config.values[name]
    jax.config.update(name, (not old) if value is None else value)
    try:
        assert settings() != before
    finally:
        jax.config.update(name, old)


def test_settings_of_logs_and_caches_do_not_count(tmp_path: Path) -> None:
    before = settings()
    for name, value in {
        "jax_log_compiles": True,
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0.5,
    }.items():
        old = getattr(jax.config, name)
        jax.config.update(name, value)
        try:
            assert settings() == before, name
        finally:
            jax.config.update(name, old)


def test_devices_count_by_kind_number_and_order() -> None:
    a, b, *_ = jax.devices()
    texts = [environment(devices) for devices in ([a], [b], [a, b], [b, a])]
    assert len({str(text) for text in texts}) == 4
    assert texts[2]["devices"] == "cpu:0 cpu, cpu:1 cpu"
    assert environment([a]) == texts[0]


def test_flags_count_as_they_were_when_xla_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = jax.devices()
    before = environment([first])
    assert before["XLA_FLAGS"] == os.environ["XLA_FLAGS"]
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")  # XLA has read it already
    assert environment([first]) == before


SCRIPT = """
import jax
from graphc.store.environment import environment
print(environment(jax.devices()[:1]))
"""


@pytest.mark.slow
def test_another_process_has_the_same_environment_until_it_differs() -> None:
    def text(**changes: str) -> str:
        variables = os.environ | {"JAX_PLATFORMS": "cpu"} | changes
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(
            command, env=variables, cwd=REPOSITORY, check=True, capture_output=True, text=True
        )
        return done.stdout

    here = text()
    assert text() == here
    flags = os.environ["XLA_FLAGS"]
    assert text(XLA_FLAGS=f"{flags} --xla_cpu_enable_fast_math=true") != here
    assert text(XLA_FLAGS=flags.replace("=4", "=3")) != here


def test_a_change_of_graphcs_sources_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "graphc"
    for folder in ("runtime", "passes", "devices"):
        (package / folder).mkdir(parents=True)
    monkeypatch.setattr(module, "__file__", str(package / "runtime" / "environment.py"))
    digests = []
    for path, text in [
        ("runtime/a.py", "x = 1"),
        ("runtime/a.py", "x = 2"),
        ("passes/b.py", "x = 2"),
        ("devices/b.py", "x = 2"),
        ("devices/machines.toml", "[h100]"),
    ]:
        (package / path).write_text(text)
        digests.append(module.sources_digest.__wrapped__())
    assert len(set(digests)) == 5
    (package / "serving").mkdir()
    (package / "serving" / "a.py").write_text("x = 1")
    assert module.sources_digest.__wrapped__() == digests[-1]
    assert module.sources_digest.__wrapped__(frozenset()) != digests[-1]


@pytest.mark.slow
def test_nothing_that_compiles_imports_what_the_digest_leaves_out() -> None:
    """Only the facade names all folders, for users, and the command's start the command line."""
    modules = layering.modules_of(layering.REPOSITORY)
    assert {m.split(".")[1] for m in modules if "." in m} >= module.NOT_COMPILING

    def folder(name: str) -> str:
        return (*name.split("."), "")[1] if name.startswith("graphc") else ""

    without = module.NOT_COMPILING
    imports = layering.imports_of(layering.REPOSITORY)
    outer = "graphc", "graphc.__main__"
    inner = [i for i in imports if i.source not in outer and folder(i.source) not in without]
    assert len(inner) > 1000
    assert not [str(i) for i in inner if folder(i.target) in without]

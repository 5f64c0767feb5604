"""The command line in a separate process: start-up, virtual devices, pipes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.scripts import HELPER, SCRIPT

REPOSITORY = Path(__file__).parents[2]


def graphc(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    """Runs `graphc` without the environment variables of the test process."""
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    environment |= {"PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "graphc", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, **options)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text(HELPER)
    path = tmp_path / "regression.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["--version"], ["trian"]])
def test_help_loads_nothing(arguments: list[str]) -> None:
    script = """
import sys
from graphc.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
others = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
assert not others & {"jax", "numpy", "optax", "tqdm"}, others
"""
    subprocess.run([sys.executable, "-c", script, *arguments], check=True, cwd=REPOSITORY)


@pytest.mark.slow
def test_the_processor_is_split_into_devices(script: Path, tmp_path: Path) -> None:
    saved = tmp_path / "model.gcx"
    done = graphc("train", script, "--devices", 2, "--save", saved, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert [device["name"] for device in facts["devices"]] == ["/device:CPU:0", "/device:CPU:1"]
    assert facts["evaluation"]["final loss"] < 0.01
    assert done.stderr == ""  # no progress bar: standard error is not a terminal
    assert facts["saved"]["bytes"] == saved.stat().st_size


@pytest.mark.slow
def test_the_users_xla_flags_are_kept(script: Path, tmp_path: Path) -> None:
    environment = os.environ | {
        "PYTHONPATH": str(REPOSITORY),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    command = [sys.executable, "-m", "graphc", "compile", script, "--devices", "4"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("graphc compile: 4 devices requested, 2 available; ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_reader_that_stops_is_no_fault(script: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "graphc", "inspect", script, "--stablehlo", "--graph"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0

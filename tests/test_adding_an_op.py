"""Follows docs/adding-an-op.md literally in a copy of the sources."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.one_jax
def test_the_page_adds_an_operator(tmp_path: Path) -> None:
    for part in ("graphc", "passes", "devices", "tests"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, tmp_path / part, symlinks=True, ignore=ignore)
    page = (ROOT / "docs" / "adding-an-op.md").read_text()
    declaration, cases = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (line,) = re.findall(r"```\n( +\w+,\n)```", page)
    (export,) = re.findall(r"```\n(from .* import \*\n)```", page)
    (tmp_path / "graphc/ops/elementwise/cubes.py").write_text(declaration)
    (tmp_path / "tests/laws/cases_cubes.py").write_text(cases)
    operators = tmp_path / "graphc/ops/__init__.py"
    above = "from graphc.ops.structure.state import *\n"
    operators.write_text(operators.read_text().replace(above, above + export, 1))
    catalogue = tmp_path / "graphc/ops/catalogue.py"
    source = catalogue.read_text()
    source = source.replace("    complex_parts,\n", "    complex_parts,\n" + line, 1)  # the import
    start = "FAMILIES: tuple[ModuleType, ...] = (\n"
    catalogue.write_text(source.replace(start, start + line, 1))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    script = "import graphc as gc; assert gc.cube.__doc__ and 'cube' in gc.__all__"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True)
    laws = ["tests/laws/test_laws.py", "tests/laws/test_dtypes.py", "-k", "Cube or cubes"]
    done = subprocess.run(
        [*command, *laws],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Values, gradient, dtypes, bad input, two numbers of replicas, CUDA.
    assert "6 passed" in done.stdout, done.stdout

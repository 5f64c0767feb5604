"""The code in the README and the guide runs unchanged."""

import importlib.util
import re
from pathlib import Path

import pytest

from graphc.devices.libraries import installed
from graphc.devices.topology import PLUGINS

ROOT = Path(__file__).parent.parent
FOR_NEWCOMERS = (
    "recipes",
    *(f"coming-from-{name}" for name in ("tensorflow", "keras", "pytorch", "numpy")),
)
GUIDE = sorted(f"guide/{path.stem}" for path in (ROOT / "docs" / "guide").glob("*.md"))
PAGES = (
    *FOR_NEWCOMERS,
    *GUIDE,
    "devices",
    "scaling",
    "architecture",
    "gpu",
    "passes",
    "reliability",
)
SLOW = [pytest.mark.slow, pytest.mark.one_jax]
FOREIGN = "guide/jax-libraries"  # needs packages: a test for each section
WITHOUT_CODE = ("guide/import-torch",)  # needs PyTorch: tests/importers/torch runs it
LONG_GUIDE = ("estimators", "saving", "serving-sessions", "training", "training-loop", "tuning")
LONG = ("devices", *(f"guide/{name}" for name in LONG_GUIDE))
NEEDS_CUDA = pytest.mark.skipif(installed(PLUGINS) is None, reason="needs the extra `cuda`")


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        *(f"docs/{name}.md" for name in FOR_NEWCOMERS),
        *(
            pytest.param(f"docs/{name}.md", marks=SLOW if name in LONG else [])
            for name in (*GUIDE, "devices", "scaling")
            if name not in (FOREIGN, *WITHOUT_CODE)
        ),
        pytest.param("docs/gpu.md", marks=[pytest.mark.gpu_compile, NEEDS_CUDA]),
    ],
)
def test_every_python_block_runs(page: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # the example saves a file
    run((ROOT / page).read_text(), page)


def run(text: str, page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    source = "\n".join(blocks)
    exec(compile(source, page, "exec"), {"__name__": "__main__"})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("package", "title"),
    [
        ("flax", "flax linen"),
        ("flax", "flax nnx"),
        ("equinox", "equinox"),
        ("haiku", "haiku"),
        ("keras", "Keras"),
    ],
)
def test_each_library_of_jax(package: str, title: str, capsys, monkeypatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    pytest.importorskip(package)
    page = f"docs/{FOREIGN}.md"
    first, *sections = (ROOT / page).read_text().split("\n## ")
    (section,) = [text for text in sections if text.startswith(f"{title}\n")]
    run(first + section, page)
    assert "[]" in capsys.readouterr().out  # nothing was left to JAX


def test_pages_that_are_linked_exist() -> None:
    for page in ("README.md", *(f"docs/{name}.md" for name in PAGES)):
        path = ROOT / page
        prose = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)\)", prose):
            assert (path.parent / target).exists(), f"{page} links to {target}"


def test_the_operator_reference_is_that_of_the_catalogue() -> None:
    place = ROOT / "docs" / "make_ops.py"
    spec = importlib.util.spec_from_file_location("make_ops", place)
    assert spec is not None and spec.loader is not None
    make_ops = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_ops)
    assert make_ops.PAGE.read_text() == make_ops.page(), "run python docs/make_ops.py"

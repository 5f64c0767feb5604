"""Rules of the reference: every public name is documented, has an example, and is on one page.

The examples themselves run as doctests.
"""

import importlib.util
import inspect
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

BUILDING = Path(__file__).parents[1] / "docs" / "building"


def _reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", BUILDING / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference"] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


REFERENCE = _reference()
ENTRIES = {entry.name: entry for entry in REFERENCE.entries()}
CALLABLE = {
    name: entry
    for name, entry in ENTRIES.items()
    if callable(entry.value) and not name.startswith("gc.typing.")
}
# Errors are raised by graphc, not called by users.
USED = {n: e for n, e in CALLABLE.items() if not n.startswith("gc.errors.")}


def test_every_public_name_is_on_one_page() -> None:
    pages = REFERENCE.pages()
    names = [n for page in pages.values() for e in page for n in (e.name, *e.others)]
    assert len(names) == len(set(names))
    for where in REFERENCE.NAMESPACES:
        module = REFERENCE.namespace(where)
        public = {f"{where}.{name}" for name, _ in REFERENCE._members(module)}
        assert public <= set(names)
    assert all(pages.values()), "a topic without names"


@pytest.mark.parametrize("name", CALLABLE)
def test_a_docstring_begins_with_a_sentence(name: str) -> None:
    assert re.match(r"\S.*[.:?!)]( |$)", CALLABLE[name].summary + " "), CALLABLE[name].summary


@pytest.mark.parametrize("name", USED)
def test_an_example_runs(name: str) -> None:
    text = inspect.getdoc(USED[name].value) or ""
    assert ">>> " in text
    module = sys.modules[inspect.unwrap(USED[name].value).__module__]
    assert module.__name__.startswith("graphc."), "its docstring is not among the doctests"


# Methods that only the runtime calls: they have no examples.
MACHINERY = {
    "gc.Session": {"forked"},
    "gc.Executable": {"convert_feeds", "feed_homes", "homes", "move_to", "place", "run_on", "step"},
    "gc.Graph": {"add", "add_input", "adopt", "next_draw", "replace_node", "restore",
                 "restore_variable"},
    "gc.State": {"buffers", "consume", "followed_by", "rearrange", "restore", "revive"},
    "gc.devices.Mesh": {"meaning", "on"},
}  # fmt: skip

# Classes whose objects users hold directly.
MAIN = [
    *[
        "gc.Bucketing",
        "gc.Executable",
        "gc.Graph",
        "gc.Node",
        "gc.Session",
        "gc.State",
        "gc.Tensor",
    ],
    *[
        "gc.JittedFunction",
        "gc.data.IndexedRecords",
        "gc.data.Pipeline",
        "gc.data.PipelineIterator",
    ],
    *["gc.data.RaggedArray", "gc.data.TFRecordWriter", "gc.metrics.Metric", "gc.nn.LSTM"],
    *["gc.nn.AdditiveAttention", "gc.nn.MultiHeadAttention", "gc.nn.TransformerBlock"],
    *["gc.train.Checkpointer", "gc.train.SummaryWriter"],
    *["gc.Variable", "gc.data.Prefetch", "gc.devices.Machine", "gc.devices.Mesh", "gc.nn.Cell"],
    *["gc.nn.Layer", "gc.nn.Recurrent", "gc.train.History", "gc.train.MovingAverages"],
    *["gc.sklearn.Classifier", "gc.sklearn.Regressor", "gc.sklearn.Transformer"],
]


def _methods(name: str) -> list[str]:
    """The public methods and properties of a class, including those inherited within graphc."""
    cls = ENTRIES[name].value
    found = []
    for base in inspect.getmro(cls):
        if base.__module__.startswith("graphc."):
            for method, value in vars(base).items():
                value = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if method[0] != "_" and inspect.isfunction(value) and method not in found:
                    found.append(method)
    return found


@pytest.mark.parametrize("name", MAIN)
def test_methods_have_examples(name: str) -> None:
    cls = ENTRIES[name].value
    without = {m for m in _methods(name) if ">>> " not in (inspect.getdoc(getattr(cls, m)) or "")}
    assert without == MACHINERY.get(name, set())


def _parts(value: object) -> list[object]:
    """A function; or a class with its constructor and its public methods."""
    if not inspect.isclass(value):
        return [value]
    methods = [
        method
        for name, method in vars(value).items()
        if inspect.isfunction(method) and (name in ("__init__", "__call__") or name[0] != "_")
    ]
    return [value, *methods]


def _is_vague(annotation: object) -> bool:
    """Whether it contains `Any` outside the type of a callable, an array or a type."""
    text = re.sub(r"\b(ndarray|dtype|type)\[[^\[\]]*\]", "", str(annotation))
    text = re.sub(r"\bCallable\[(\.\.\.|\[[^\]]*\]), [^\]]*\]+", "", text)
    return annotation is inspect.Parameter.empty or re.search(r"\bAny\b", text) is not None


@pytest.mark.parametrize("name", USED)
def test_parameters_have_real_types(name: str) -> None:
    for part in _parts(USED[name].value):
        try:
            signature = inspect.signature(part)
        except ValueError:  # a class written in C
            continue
        for parameter in signature.parameters.values():
            if parameter.name not in ("self", "cls"):
                assert not _is_vague(parameter.annotation), f"{part}: {parameter}"
        assert str(signature.return_annotation) != "Any", part


def test_names_of_other_libraries_lead_to_public_names() -> None:
    public = {name for entry in ENTRIES.values() for name in (entry.name, *entry.others)}
    allowed = public | {"gc.errors", "gc.__version__"}
    tables = tomllib.loads((BUILDING.parents[1] / "graphc/ir/other_libraries.toml").read_text())
    assert set(tables) == {"TensorFlow", "Keras", "PyTorch", "NumPy"}
    for library, table in tables.items():
        names = [name for name in table if name != "title"]
        assert names == sorted(names, key=str.lower), library
        for theirs in names:
            for ours in re.findall(r"`(gc\.[\w.]+)", table[theirs]):
                assert ours in allowed, f"{library}: {theirs} -> {ours}"


def test_the_guide_begins_with_what_everybody_needs_and_ends_with_tuning() -> None:
    text = (BUILDING.parents[1] / "mkdocs.yml").read_text()
    guide = text[text.index("- Guide:") : text.index("- Coming from:")]
    pages = re.findall(r": ([\w/-]+)\.md", guide)
    assert pages[:4] == ["guide/graphs", "guide/training", "guide/saving", "devices"]
    assert pages[-2:] == ["passes", "guide/tuning"]
    listed = {path.stem for path in (BUILDING.parent / "guide").glob("*.md")}
    assert listed == {page.removeprefix("guide/") for page in pages if page.startswith("guide/")}


def test_distributions_show_values() -> None:
    for name, entry in CALLABLE.items():
        if name == "gc.random.random_key":  # a key is no number
            continue
        if name.startswith("gc.random.") and "seed" in inspect.signature(entry.value).parameters:
            text = inspect.getdoc(entry.value) or ""
            values = [line for line in text.splitlines() if re.match(r" *(Array\(|\[)", line)]
            assert values, f"{name}: the example shows no numbers"

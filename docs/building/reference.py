"""The public names of graphc, where they live, and on which page of the reference they stand."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from types import ModuleType
from typing import Any

# The packages whose names are public, as users write them.
NAMESPACES = (
    "gc",
    "gc.nn",
    "gc.nn.initializers",
    "gc.random",
    "gc.linalg",
    "gc.fft",
    "gc.train",
    "gc.data",
    "gc.metrics",
    "gc.serving",
    "gc.cluster",
    "gc.sklearn",
    "gc.devices",
    "gc.typing",
    "gc.errors",
)


@dataclass(frozen=True)
class Topic:
    """One page: `homes` are the modules, or the packages, whose names stand on it."""

    file: str
    title: str
    intro: str
    homes: tuple[str, ...]


@dataclass
class Entry:
    """A public object: `name` is what users write, `path` where it is defined."""

    name: str
    path: str
    value: Any
    others: list[str] = field(default_factory=list)  # its other public names

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring."""
        text = self._text_below() or inspect.getdoc(self.value)
        return " ".join((text or "").partition("\n\n")[0].split())

    def _text_below(self) -> str | None:
        """The string below the assignment of a name that is no function or class."""
        module, _, name = self.path.rpartition(".")
        if _has_home(self.value):
            return None
        body = ast.parse(inspect.getsource(importlib.import_module(module))).body
        for statement, below in pairwise(body):
            named = isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == name
            if named and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                return str(below.value.value)
        return None


def _topic(file: str, title: str, intro: str, homes: str) -> Topic:
    return Topic(file, title, intro, tuple(f"graphc.{home}" for home in homes.split()))


# In the order of the site. The home that fits best decides: `ops.arrays.shape` before `ops`.
TOPICS = (
    _topic(
        "graphs",
        "Graphs and variables",
        "What a graph is made of, and how its nodes are named, placed and ordered.",
        "build ir ops.core ops.structure ops.numpy_api.other_graph_names",
    ),
    _topic(
        "running",
        "Sessions and executables",
        "How a graph runs: just in time in a session, or compiled ahead of time.",
        "runtime config",
    ),
    _topic(
        "training",
        "Gradients and training",
        "Derivatives as nodes, optimizers of optax, and a loop that trains.",
        "autodiff optim train ops.numpy_api.other_names.clip_by_norm "
        "ops.numpy_api.other_names.global_norm",
    ),
    _topic(
        "saving", "Saving and loading", "Artifacts: programs and weights in a file.", "artifacts"
    ),
    _topic(
        "checkpoints",
        "Checkpoints",
        "The state of a training job in a folder, and how it comes back.",
        "checkpoints",
    ),
    _topic(
        "metrics",
        "Streaming metrics",
        "Measurements over many batches, whose state is variables of the graph.",
        "metrics",
    ),
    _topic(
        "reports",
        "Reports, profiles and comparisons",
        "Pages about a graph; where the time of a step goes: by node, by line of your program, and "
        "on the host; and where two runs part.",
        "reports divergence",
    ),
    _topic(
        "serving",
        "The model server",
        "Serves artifacts by the protocols of TensorFlow Serving, and calls such servers.",
        "serving web",
    ),
    _topic(
        "clusters",
        "Clusters",
        "One program in several processes, on one machine or many.",
        "cluster",
    ),
    _topic(
        "estimators",
        "Estimators",
        "Estimators of scikit-learn whose networks are functions that build graphs.",
        "sklearn",
    ),
    _topic("data", "Data", "Batches, buckets of lengths, and batches prepared ahead.", "data"),
    _topic(
        "records",
        "TFRecord files and Examples",
        "Files of records, and the protobuf messages in them, without TensorFlow.",
        "data.records",
    ),
    _topic(
        "devices",
        "Devices",
        "Several devices, and models of GPUs.",
        "devices ops.structure.sharding",
    ),
    _topic(
        "layers",
        "Layers",
        "Layers create their variables at the first call, and share them at later calls.",
        "nn.layers",
    ),
    _topic(
        "recurrent",
        "Recurrent layers and transformers",
        "Layers over sequences [batch, time, features].",
        "nn.recurrent nn.transformer nn.layers.positions",
    ),
    _topic(
        "initializers",
        "Initializers and regularizers",
        "How variables begin, and what a loss may add for them.",
        "build.initializers build.scaled_initializers nn.layers.initializers "
        "nn.layers.regularizers",
    ),
    _topic(
        "activations",
        "Activations and masks",
        "Functions between layers, elementwise or along an axis.",
        "ops.elementwise.activation nn.functional.nonlinear nn.functional.masks "
        "nn.layers.activations ops.draws.dropout",
    ),
    _topic(
        "losses",
        "Losses and metrics",
        "Losses take keywords and give one value for each example, unless they say otherwise.",
        "nn.functional.losses nn.functional.distances nn.functional.sampled_losses "
        "nn.functional.ranking nn.functional.crf nn.functional.ctc nn.functional.ctc_decoding "
        "ops.nn.loss ops.tasks.ctc_beams ops.tasks.edit_distance",
    ),
    _topic(
        "convolutions",
        "Convolution, pooling, norms, attention",
        "What layers use, as functions of tensors. Images are [batch, height, width, channels].",
        "ops.nn nn.functional.convolutions nn.functional.norms nn.functional.patches "
        "nn.functional.unpooling nn.functional.images.global_avg_pool "
        "nn.functional.images.global_max_pool",
    ),
    _topic(
        "images",
        "Images",
        "Colours, sizes, boxes and morphology of images [batch, height, width, channels].",
        "nn.functional.images nn.functional.colors ops.tasks",
    ),
    _topic(
        "arithmetic",
        "Arithmetic, comparison, bits",
        "Elementwise, with NumPy's broadcasting and JAX's dtype promotion.",
        "ops.elementwise ops.numpy_api.ufuncs ops.numpy_api.predicates "
        "ops.numpy_api.other_names.add_n ops.numpy_api.other_names.clip_by_value "
        "ops.numpy_api.other_names.squared_difference",
    ),
    _topic(
        "functions",
        "Powers, exponentials, trigonometry",
        "Elementwise functions of one or two operands.",
        "ops.elementwise.transcendental ops.elementwise.powers ops.elementwise.roots "
        "ops.elementwise.complex_parts",
    ),
    _topic(
        "special",
        "Special functions",
        "Those of scipy.special that models need, with gradients.",
        "ops.scipy_api",
    ),
    _topic(
        "arrays",
        "Creation, shape, joining",
        "Tensors from nothing, and tensors rearranged.",
        "ops.arrays ops.numpy_api",
    ),
    _topic(
        "indexing",
        "Indexing and selection",
        "Reading and changing parts of a tensor. A change gives another tensor.",
        "ops.arrays.along_axis ops.arrays.indexing ops.arrays.slicing ops.arrays.padding "
        "ops.arrays.dynamic_slicing ops.arrays.gathering_nd ops.arrays.scattering "
        "ops.arrays.scattering_nd ops.arrays.index_pairs ops.numpy_api.select "
        "ops.numpy_api.sized ops.numpy_api.partitions ops.numpy_api.segments "
        "ops.numpy_api.other_names.gather ops.elementwise.comparison.where",
    ),
    _topic(
        "reductions",
        "Sums, sorting, statistics",
        "Functions along axes.",
        "ops.reductions ops.numpy_api.nan_reductions ops.numpy_api.statistics "
        "ops.numpy_api.searching ops.numpy_api.correlations ops.numpy_api.differences "
        "ops.numpy_api.polynomials",
    ),
    _topic(
        "control",
        "Loops, branches, functions",
        "Operators with bodies, traced once.",
        "ops.control ops.numpy_api.other_graph_names.case lowering",
    ),
    _topic(
        "linalg",
        "Matrices",
        "Products and linear algebra, for stacks of matrices.",
        "ops.matrices",
    ),
    _topic(
        "fft",
        "Fourier transforms",
        "Along one axis or several, of real and complex signals.",
        "ops.fft",
    ),
    _topic(
        "random",
        "Random numbers",
        "New numbers in every run, the same for the same seed of the graph.",
        "ops.draws",
    ),
    _topic(
        "jax",
        "JAX functions",
        "JAX functions compiled by graphc, JAX functions as nodes, and graphs as JAX functions.",
        "jaxpr jitted",
    ),
    _topic(
        "importers",
        "Models of other frameworks",
        "Models that come in from other frameworks, and graphs that leave in their formats.",
        "importers exporters",
    ),
    _topic(
        "typing", "Types of parameters", "What the parameters in this reference take.", "typing"
    ),
    _topic("errors", "Errors", "What went wrong, where in your code, and what to do.", "errors"),
)


def namespace(name: str) -> ModuleType:
    """The module behind a name such as "gc.nn"."""
    module: Any = importlib.import_module("graphc")
    for part in name.split(".")[1:]:
        module = getattr(module, part)
    return module


def _members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name in getattr(module, "__all__", None) or dir(module):
        value = getattr(module, name)
        if not name.startswith("_") and not isinstance(value, ModuleType):
            yield name, value


def _has_home(value: Any) -> bool:
    """Whether it is a function or a class of graphc, which know their modules."""
    is_named = inspect.isfunction(value) or inspect.isclass(value)
    return is_named and value.__module__.startswith("graphc.")


def _module_of(name: str, value: Any) -> str | None:
    """The module that assigns a name which is no function or class."""
    for path, module in list(sys.modules.items()):
        is_here = path.startswith("graphc.") and vars(module).get(name) is value
        if is_here and f"\n{name}: " in inspect.getsource(module):
            return path
    return None


def entries() -> list[Entry]:
    """Every public object once, sorted by the name that users write."""
    found: dict[object, list[tuple[str, Any, str]]] = {}
    for where in NAMESPACES:
        module = namespace(where)
        for name, value in _members(module):
            origin = inspect.unwrap(value) if inspect.isfunction(value) else value
            # Several types of parameters may be the same for Python: `Any`.
            key = id(origin) if _has_home(origin) else f"{where}.{name}"
            found.setdefault(key, []).append((f"{where}.{name}", value, module.__name__))
    made = []
    for names in found.values():
        value = names[0][1]
        own = value.__name__ if _has_home(value) else names[0][0].rpartition(".")[2]
        names.sort(
            key=lambda item: (item[0].rpartition(".")[2] != own, item[0].count("."), item[0])
        )
        (name, _, module), *others = names
        home = value.__module__ if _has_home(value) else _module_of(own, value) or module
        path = f"{home}.{own}"
        made.append(Entry(name, path, value, [other for other, *_ in others]))
    return sorted(made, key=lambda entry: entry.name.lower())


def topic_of(path: str) -> Topic:
    """The page on which the object at this path stands.

    Raises:
        LookupError: no topic has its home.
    """
    fitting = [
        (len(home), topic)
        for topic in TOPICS
        for home in topic.homes
        if f"{path}.".startswith(f"{home}.")
    ]
    if not fitting:
        raise LookupError(f"{path} has no topic in docs/building/reference.py")
    return max(fitting, key=lambda pair: pair[0])[1]


def pages() -> dict[Topic, list[Entry]]:
    """The entries of each page, in the order of the site."""
    found: dict[Topic, list[Entry]] = {topic: [] for topic in TOPICS}
    for entry in entries():
        found[topic_of(entry.path)].append(entry)
    return found

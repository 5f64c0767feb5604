"""The environment of every test and doctest: four virtual CPU devices, fast
compilation, no GPU tests without a GPU, and a separate cache for compiled
programs."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version
from itertools import count
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

# Other processes may use the machine, so an example may take any time.
settings.register_profile(
    "graphc", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("graphc")

# XLA reads its flags once, when JAX creates its first device.
_DEVICE_COUNT = "--xla_force_host_platform_device_count"
_flags = os.environ.get("XLA_FLAGS", "")
if _DEVICE_COUNT not in _flags:
    _flags = f"{_flags} {_DEVICE_COUNT}=4"
# The suite compiles much and runs little. Without LLVM's optimizations programs compile in half the
# time, and on JAX 0.10 in a fifth with XLA:CPU's older way to write fusions (newer JAX has only one
# way). Use `optimised` of tests/compiling.py for tests that must run as users' programs do.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
_FUSIONS = "--xla_cpu_use_fusion_emitters"
if version("jaxlib").startswith("0.10.") and _FUSIONS not in _flags:
    _flags = f"{_flags} {_FUSIONS}=false"
os.environ["XLA_FLAGS"] = _flags.strip()

# The user's cache is never used, not even by module-wide fixtures and child processes.
_caches = tempfile.TemporaryDirectory(prefix="graphc-tests-")
_numbers = count()
os.environ["XDG_CACHE_HOME"] = _caches.name


@pytest.fixture(autouse=True)
def own_cache() -> Iterator[None]:
    """Uses a separate cache folder for each test, so that tests share no compiled programs."""
    folder = os.path.join(_caches.name, str(next(_numbers)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", folder)
        yield
    shutil.rmtree(folder, ignore_errors=True)  # most tests make none


@pytest.fixture(autouse=True, scope="session")
def small_layers_in_loops() -> Iterator[None]:
    """Makes loops of small layers too, as of users' large ones: models of tests are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphc.passes.pipelines._FEWEST_IN_LAYERS", 0)
        yield


@pytest.fixture(autouse=True)
def own_numbers(request: pytest.FixtureRequest) -> None:
    """Seeds `RNG` of the test's module, so that a test draws the same numbers in every order."""
    generator = getattr(getattr(request.node, "module", None), "RNG", None)
    if generator is not None:
        seed = crc32(request.node.nodeid.encode())
        generator.bit_generator.state = type(generator.bit_generator)(seed).state


@pytest.fixture(autouse=True)
def registered_for_one_test() -> Iterator[None]:
    """Restores the catalogue of operators after each test and doctest."""
    module = sys.modules.get("graphc.ops.catalogue")
    before = dict(module.CATALOGUE._ops) if module else {}
    yield
    if before:
        module.CATALOGUE._ops = before


@pytest.fixture(autouse=True)
def jitted_for_one_test() -> None:
    """Forgets the programs of functions that several tests jit."""
    module = sys.modules.get("graphc.jitted.shared")
    if module:
        module._OF.clear()


@pytest.fixture(autouse=True)
def names_of_examples(request: pytest.FixtureRequest) -> Iterator[None]:
    """The names that docstring examples use without an import: see docs/reference.md."""
    if not isinstance(request.node, pytest.DoctestItem):
        yield
        return
    import numpy as np
    import optax

    import graphc

    with graphc.Graph(seed=0) as graph, graph.extend(), np.printoptions(precision=4, suppress=True):

        def run(fetches: Any, feeds: Any = None) -> Any:
            return graphc.Session(graph).run(fetches, feeds)

        names = request.getfixturevalue("doctest_namespace")
        names.update(gc=graphc, np=np, optax=optax, run=run, graph=graph)
        yield


# Folders with equal results on every JAX; single tests have the mark `one_jax` instead.
_ONE_JAX = (
    # Files, processes and threads; requirements of scikit-learn, browsers and TensorBoard.
    "tests/benchmarks/",
    "tests/checkpoints/test_kill.py",
    "tests/data/",
    "tests/reports/test_graph_browser.py",
    "tests/reports/test_graph_odd_pages.py",
    "tests/reports/test_graph_report.py",
    "tests/examples/test_cluster.py",
    "tests/sklearn/test_checks.py",
    "tests/sklearn/test_estimators.py",
    "tests/sklearn/test_processes.py",
    "tests/train/tensorboard/",
    "tests/untrusted/",
    # Rules about the source.
    "tests/test_assertions.py",
    "tests/test_layering.py",
    # Error messages and other texts.
    "tests/newcomers/test_foreign_names.py",
    "tests/newcomers/test_index_of_names.py",
    "tests/newcomers/test_mistakes.py",
    "tests/newcomers/test_mistakes_of_names.py",
    "tests/newcomers/test_more_mistakes.py",
    "tests/newcomers/test_other_names.py",
    "tests/newcomers/test_pictures.py",
    "tests/test_facade.py",
    "tests/test_reference.py",
    # Graphs, gradients, records of operators and passes: programs before and after have the same
    # operators, and the laws of values and dtypes run every operator on each JAX.
    "tests/ir/",
    "tests/laws/test_named_sizes.py",
    "tests/laws/test_padded_rows.py",
    "tests/laws/test_row_by_row.py",
    "tests/passes/attention/",
    "tests/passes/frozen/",
    "tests/passes/memory/",
    "tests/passes/rolling/",
    "tests/passes/simplify/",
    "tests/passes/sparse/",
    "tests/passes/test_meaning.py",
    # Models of other frameworks: they use operators that the laws test.
    "tests/exporters/",
    "tests/importers/onnx/",
    "tests/importers/tensorflow/",
    # Data on the wire; processes and their ends.
    "tests/serving/batching/",
    "tests/serving/clients/",
    "tests/serving/endpoints/",
    "tests/serving/models/",
    "tests/serving/protocol/",
    "tests/serving/test_deploy.py",
    "tests/serving/test_fuzz.py",
    "tests/serving/test_hostile.py",
    "tests/serving/test_status_browser.py",
    "tests/serving/test_tls.py",
    "tests/cluster/jobs/",
    "tests/cluster/test_launching.py",
    "tests/cluster/test_progress.py",
    "tests/cluster/test_spec.py",
    "tests/cluster/test_training.py",
)


@pytest.hookimpl(tryfirst=True)  # before -m deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(_ONE_JAX):
            item.add_marker(pytest.mark.one_jax)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long",
        action="store_true",
        help="run the attacks of tests/reliability with their full numbers of rounds (hours)",
    )


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """`rounds(short, long)`: the number of attacks; it is `long` only under `--long`."""
    return lambda short, long: long if request.config.getoption("--long") else short


@cache
def _has_gpu() -> bool:
    import jax

    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:  # JAX has no GPU backend here
        return False


def pytest_configure() -> None:
    """Shells start background jobs with SIGINT ignored, but tests of interrupts need it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not _has_gpu():
        pytest.skip("needs a GPU")


@pytest.fixture(autouse=True, scope="session")
def no_comparison_inside() -> Iterator[None]:
    """A rule for the whole suite: graphc itself never compares tensors with `==`.

    `t in list`, `list.index(t)` and `a == b` would add nodes to the user's graph.
    """
    import graphc.ops.methods  # noqa: F401  binds the operators of tensors
    from graphc.ir import node, operators

    package = os.path.dirname(os.path.dirname(os.path.realpath(node.__file__)))
    root = os.path.dirname(package)
    inside = tuple(os.path.join(root, name) + os.sep for name in ("graphc", "passes", "devices"))

    def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
        def compare(x: Any, y: Any) -> Any:
            caller = sys._getframe(2)  # of Operand.__eq__
            path = os.path.realpath(caller.f_code.co_filename)
            if path.startswith(inside):
                raise AssertionError(f"{path}:{caller.f_lineno} compares tensors with == or in")
            return function(x, y)

        # A frame that belongs to graphc, so that users' lines are found behind it.
        compare.__code__ = compare.__code__.replace(co_filename=node.__file__)
        return compare

    with pytest.MonkeyPatch.context() as patch:
        for name in ("equal", "not_equal"):
            patch.setitem(operators.METHODS, name, guarded(operators.METHODS[name]))
        yield


def pytest_collection_finish() -> None:
    """Objects that exist now stay until the end, so the collector need not traverse them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 10, 10)


_MODULES_BETWEEN_SWEEPS = 30
_since_sweep = count()


@pytest.fixture(scope="module", autouse=True)
def bounded_heap() -> Iterator[None]:
    """Keeps a long-lived worker as fast as a new one.

    JAX keeps every function that it compiled, with its jaxpr and native code: 4 GB after 3,000
    tests. A test that collects garbage (as tuning does before each measurement) then takes seconds
    per collection.
    """
    global _since_sweep
    yield
    if next(_since_sweep) < _MODULES_BETWEEN_SWEEPS:
        return
    _since_sweep = count()
    import jax

    jax.clear_caches()
    gc.unfreeze()
    gc.collect()
    gc.freeze()

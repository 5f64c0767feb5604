"""What every test and every docstring example runs under: four virtual CPU devices, compilation
that does not take long, no GPU tests where there is no GPU, and a cache of its own for compiled
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

import pytest
from hypothesis import HealthCheck, settings

# An example may take any time: other processes may use the machine.
settings.register_profile(
    "graphc", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("graphc")

# XLA reads its flags once, when JAX makes its first device.
_DEVICE_COUNT = "--xla_force_host_platform_device_count"
_flags = os.environ.get("XLA_FLAGS", "")
if _DEVICE_COUNT not in _flags:
    _flags = f"{_flags} {_DEVICE_COUNT}=4"
# The suite compiles much and runs little: without LLVM's optimisations programs compile in half the
# time, and on JAX 0.10 in a fifth with the older way in which XLA:CPU writes fusions (newer JAX has
# one way alone). What must run as users' programs do is in `optimised` of tests/compiling.py.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
_FUSIONS = "--xla_cpu_use_fusion_emitters"
if version("jaxlib").startswith("0.10.") and _FUSIONS not in _flags:
    _flags = f"{_flags} {_FUSIONS}=false"
os.environ["XLA_FLAGS"] = _flags.strip()

# The user's cache is never touched, not by module-wide fixtures and child processes either.
_caches = tempfile.TemporaryDirectory(prefix="graphc-tests-")
_numbers = count()
os.environ["XDG_CACHE_HOME"] = _caches.name


@pytest.fixture(autouse=True)
def own_cache() -> Iterator[None]:
    """A folder for each test: no program that another one compiled is found again."""
    folder = os.path.join(_caches.name, str(next(_numbers)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", folder)
        yield
    shutil.rmtree(folder, ignore_errors=True)  # most tests make none


@pytest.fixture(autouse=True)
def registered_for_one_test() -> Iterator[None]:
    """The catalogue of operators as it was, after each test and example."""
    module = sys.modules.get("graphc.ops.catalogue")
    before = dict(module.CATALOGUE._ops) if module else {}
    yield
    if before:
        module.CATALOGUE._ops = before


@pytest.fixture(autouse=True)
def names_of_examples(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the examples in docstrings use without importing it: see docs/reference.md."""
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


# What gives the same on every JAX, beside the tests that are marked `one_jax` where they stand.
_ONE_JAX = (
    # Files, processes and threads; what scikit-learn, browsers and TensorBoard require.
    "tests/benchmarks/",
    "tests/checkpoints/test_kill.py",
    "tests/data/test_the_end.py",
    "tests/data/test_workers.py",
    "tests/reports/test_graph_browser.py",
    "tests/reports/test_graph_odd_pages.py",
    "tests/reports/test_graph_report.py",
    "tests/sklearn/test_checks.py",
    "tests/examples/test_cluster.py",
    "tests/sklearn/test_processes.py",
    "tests/train/tensorboard/",
    # What errors and other texts say.
    "tests/newcomers/test_foreign_names.py",
    "tests/newcomers/test_index_of_names.py",
    "tests/newcomers/test_mistakes_of_names.py",
    "tests/newcomers/test_other_names.py",
    "tests/newcomers/test_pictures.py",
    "tests/test_facade.py",
    "tests/test_reference.py",
    # Graphs, gradients, records of operators and passes: a program before and after has the same
    # operators, and the laws of values and dtypes run every operator on each JAX.
    "tests/laws/test_named_sizes.py",
    "tests/laws/test_padded_rows.py",
    "tests/laws/test_row_by_row.py",
    "tests/passes/attention/test_meaning_of_attention.py",
    "tests/passes/memory/test_meaning_of_recompute.py",
    "tests/passes/rolling/test_meaning_of_loops.py",
    "tests/passes/rolling/test_meaning_of_windows.py",
    "tests/passes/simplify/test_hoist_products.py",
    "tests/passes/simplify/test_meaning_of_bodies.py",
    "tests/passes/simplify/test_meaning_of_marks.py",
    "tests/passes/sparse/test_meaning_of_rows.py",
    "tests/passes/test_meaning.py",
    # Models of other frameworks: their operators are written with those of the laws.
    "tests/exporters/",
    "tests/importers/onnx/",
    "tests/importers/tensorflow/",
    # What is on the wire, processes and their ends.
    "tests/serving/clients/",
    "tests/serving/protocol/",
    "tests/serving/test_deploy.py",
    "tests/serving/test_fuzz.py",
    "tests/serving/test_status_browser.py",
    "tests/serving/test_tls.py",
    "tests/cluster/jobs/",
    "tests/cluster/test_launching.py",
    "tests/cluster/test_progress.py",
    "tests/cluster/test_spec.py",
    "tests/cluster/test_training.py",
    "tests/serving/models/test_reload_under_load.py",
    "tests/serving/models/test_restart.py",
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
    """`rounds(short, long)`: how often to attack; the long number only under `--long`."""
    return lambda short, long: long if request.config.getoption("--long") else short


@cache
def _has_gpu() -> bool:
    import jax

    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:  # JAX has no GPU backend here
        return False


def pytest_configure() -> None:
    """A shell starts its background jobs with SIGINT ignored; the tests of interrupts need it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not _has_gpu():
        pytest.skip("needs a GPU")


@pytest.fixture(autouse=True, scope="session")
def no_comparison_inside() -> Iterator[None]:
    """A law for the whole suite: graphc itself never compares tensors with `==`.

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

        # A frame of graphc's own, so that users' lines are found behind it.
        compare.__code__ = compare.__code__.replace(co_filename=node.__file__)
        return compare

    with pytest.MonkeyPatch.context() as patch:
        for name in ("equal", "not_equal"):
            patch.setitem(operators.METHODS, name, guarded(operators.METHODS[name]))
        yield


def pytest_collection_finish() -> None:
    """Objects that exist now stay until the end: the collector need not traverse them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 10, 10)


_MODULES_BETWEEN_SWEEPS = 30
_since_sweep = count()


@pytest.fixture(scope="module", autouse=True)
def bounded_heap() -> Iterator[None]:
    """Keeps a long-lived worker as fast as a fresh one.

    JAX keeps every function that it compiled, with its jaxpr and its native code: 4 GB after 3,000
    tests. A test that collects garbage (tuning does, before each measurement) then takes seconds
    for each collection.
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

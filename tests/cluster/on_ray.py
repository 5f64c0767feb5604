"""Starts Ray on this machine for tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

MARKS = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    # Ray forks and leaves files open, which is no fault of a test.
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A fixture that starts Ray; its processes find the packages of this process."""
    import ray

    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    paths = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    ray.init(
        num_cpus=8,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"}},
    )
    yield
    ray.shutdown()

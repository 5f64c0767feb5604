"""Tests that compile for GPUs that are not present. They need JAX's CUDA plugin (the extra `cuda`),
but no GPU. `make test-gpu-compile` runs them; without the plugin they are skipped."""

from collections.abc import Iterator

import jax
import pytest

from graphc.devices.libraries import installed
from graphc.devices.topology import PLUGINS
from tests.compiling import optimised


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = installed(PLUGINS) is None
    for item in items:
        if "gpu_compile" in item.path.parts:
            item.add_marker(pytest.mark.gpu_compile)
            if missing:
                item.add_marker(pytest.mark.skip(reason="needs the extra `cuda`"))


@pytest.fixture(scope="module", autouse=True)
def optimised_programs() -> Iterator[None]:
    """Programs are compiled as for users."""
    with optimised():
        yield


@pytest.fixture(scope="module", autouse=True)
def only_the_processor() -> None:
    """Prevents JAX from searching for a GPU."""
    assert {device.platform for device in jax.devices()} == {"cpu"}

"""What every test runs under: four virtual CPU devices, and no GPU tests where there is no GPU."""

import os
from functools import cache

import pytest

# XLA reads its flags once, when JAX makes its first device.
_DEVICE_COUNT = "--xla_force_host_platform_device_count"
_flags = os.environ.get("XLA_FLAGS", "")
if _DEVICE_COUNT not in _flags:
    os.environ["XLA_FLAGS"] = f"{_flags} {_DEVICE_COUNT}=4".strip()


@cache
def _has_gpu() -> bool:
    import jax

    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:  # JAX has no GPU backend here
        return False


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not _has_gpu():
        pytest.skip("needs a GPU")

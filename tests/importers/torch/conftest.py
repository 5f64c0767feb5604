"""Leaves the script that needs PyTorch out of collection, and warnings of torch.export out of
tests."""

import warnings
from collections.abc import Iterator

import pytest

collect_ignore = ["make_archives.py"]


@pytest.fixture(autouse=True)
def without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.export
        yield

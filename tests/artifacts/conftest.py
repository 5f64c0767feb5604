"""Fixtures for several test modules of artifacts."""

from pathlib import Path

import pytest

from tests.artifacts.hostile import plain_model


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """The file that `plain_model` writes."""
    path = tmp_path_factory.mktemp("plain") / "model.gcx"
    plain_model(path)
    return path

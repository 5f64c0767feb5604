"""Managers that are closed after each test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from graphc.serving.config import ModelConfig
from graphc.serving.models.manager import Manager


@pytest.fixture
def managing() -> Iterator[Callable[..., Manager]]:
    """Starts a manager that searches for versions only on request."""
    made: list[Manager] = []

    def start(*configs: ModelConfig, **options: Any) -> Manager:
        manager = Manager(configs, poll_seconds=0, **{"cache": None, **options})
        made.append(manager)
        manager.start()
        return manager

    yield start
    for manager in made:
        manager.close(timeout=60)

"""Checks of the arguments of stages."""

from __future__ import annotations

from typing import Any

from graphc.errors import AttributeValueError


def check_count(name: str, value: Any, least: int) -> None:
    """Refuses what is not an int of at least `least`."""
    if type(value) is not int or value < least:
        raise AttributeValueError.here(f"{name} must be an int of at least {least}, got {value!r}")


def check_callable(name: str, value: Any, example: str) -> None:
    """Refuses what cannot be called."""
    if not callable(value):
        raise AttributeValueError.here(
            f"{name} takes a function, got {type(value).__name__}", hint=example
        )

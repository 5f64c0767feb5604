"""How a process joins its cluster. These tests make no connections."""

from __future__ import annotations

from typing import Any

import jax
import pytest

import graphc as gc
from graphc.cluster import joining


def test_what_jax_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def initialize(*place: Any, **settings: Any) -> None:
        given.update(settings, place=place, preemption=jax.config.jax_enable_preemption_service)

    before = jax.config.jax_enable_preemption_service
    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    monkeypatch.setattr(joining, "_end_at_once_after_an_error", lambda: None)
    spec = gc.cluster.ClusterSpec({"worker": ["a:1", "b:1"]})
    try:
        joining._connect(spec.member("worker", 1), timeout=7.0, heartbeat=5.0)
    finally:
        jax.config.update("jax_enable_preemption_service", before)
    assert given["place"] == ("a:1", 2, 1)
    assert given["initialization_timeout"] == 7
    assert given["heartbeat_timeout_seconds"] == 5
    # At the end, a chief may export or evaluate alone for longer than a start may take.
    assert given["shutdown_timeout_seconds"] >= 3600
    assert not given["preemption"]  # otherwise JAX lets processes ignore SIGTERM

"""Metrics of sessions."""

from __future__ import annotations

from graphc.serving.endpoints.metrics import Counter, Metrics
from graphc.serving.models.sessions import Sessions


def observe_sessions(sessions: Sessions, metrics: Metrics) -> Counter:
    """Adds the metrics of sessions.

    Returns:
        the counter of steps, by model, to which the caller adds.
    """
    prefix = "graphc_serving_session"
    ended = Counter(f"{prefix}s_ended_total", "Sessions by their end.", ("model", "reason"))
    steps = Counter(f"{prefix}_steps_total", "Steps in sessions.", ("model",))
    metrics.add(ended)
    metrics.add(steps)
    metrics.gauge(f"{prefix}s", "Open sessions.", lambda: len(sessions))
    metrics.gauge(f"{prefix}_bytes", "Bytes of their variables.", lambda: sessions.nbytes)
    sessions.observers.append(ended.add)
    return steps

"""`minimize`: an optax transformation as visible nodes of the graph."""

from __future__ import annotations


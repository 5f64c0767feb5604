"""`Quiet`: a callback that only the chief of a cluster calls, in the other processes."""

from __future__ import annotations

from graphc.train.callbacks.base import Callback


class Quiet(Callback):
    """Has the fetches of a callback, so that all processes run the same steps, and does nothing."""

    def __init__(self, callback: Callback) -> None:
        self.fetches = callback.fetches
        self.fetch_every = callback.fetch_every
        self.session_every = callback.session_every

"""Training loops."""

from graphc.train.loop import History as History
from graphc.train.loop import Job as Job
from graphc.train.loop import fit as fit

__all__ = ["History", "Job", "fit"]

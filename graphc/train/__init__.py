"""Training loops."""

from graphc.optim import MovingAverages as MovingAverages
from graphc.optim import apply_gradients as apply_gradients
from graphc.optim import moving_averages as moving_averages
from graphc.train.loop import History as History
from graphc.train.loop import Job as Job
from graphc.train.loop import fit as fit

__all__ = ["History", "Job", "MovingAverages", "apply_gradients", "fit", "moving_averages"]

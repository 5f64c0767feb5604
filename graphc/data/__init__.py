"""Input pipelines."""

from graphc.data.batches import Batches as Batches

__all__ = ["Batches"]

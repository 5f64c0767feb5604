"""Input pipelines."""

from graphc.data.batches import Batches as Batches
from graphc.data.bucketing import Bucketing as Bucketing
from graphc.data.prefetching import Prefetch as Prefetch
from graphc.data.prefetching import prefetch as prefetch

__all__ = ["Batches", "Bucketing", "Prefetch", "prefetch"]

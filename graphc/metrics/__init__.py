"""Streaming metrics: measurements over many batches, whose state is variables of the graph."""

import typing

from graphc.ir.namespaces import namespace as _namespace
from graphc.metrics.base import Metric as Metric
from graphc.metrics.classification import Accuracy as Accuracy
from graphc.metrics.classification import TopK as TopK
from graphc.metrics.confusion import F1 as F1
from graphc.metrics.confusion import ConfusionMatrix as ConfusionMatrix
from graphc.metrics.confusion import MeanIoU as MeanIoU
from graphc.metrics.confusion import Precision as Precision
from graphc.metrics.confusion import Recall as Recall
from graphc.metrics.means import Mean as Mean
from graphc.metrics.means import MeanAbsoluteError as MeanAbsoluteError
from graphc.metrics.means import MeanSquaredError as MeanSquaredError
from graphc.metrics.means import Perplexity as Perplexity
from graphc.metrics.means import Sum as Sum
from graphc.metrics.ranking import AUC as AUC

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __dir__, __getattr__ = _namespace("graphc.metrics", globals())

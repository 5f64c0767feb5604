"""Input pipelines."""

import typing

from graphc.data.batches import Batches as Batches
from graphc.data.bucketing import Bucketing as Bucketing
from graphc.data.prefetching import Prefetch as Prefetch
from graphc.data.prefetching import prefetch as prefetch
from graphc.ir.namespaces import namespace as _namespace

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__, __dir__, __getattr__ = _namespace("graphc.data", globals())

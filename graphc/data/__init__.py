"""Input pipelines."""

import typing

from graphc import exports
from graphc.data.batches import Batches as Batches
from graphc.data.bucketing import Bucketing as Bucketing
from graphc.data.prefetching import Prefetch as Prefetch
from graphc.data.prefetching import prefetch as prefetch
from graphc.ir.name_errors import no_function as _no_function

if not typing.TYPE_CHECKING:  # type checkers read the imports
    __all__ = exports.names(globals())

    def __dir__() -> list[str]:
        return __all__

    def __getattr__(name: str) -> typing.NoReturn:
        raise _no_function("graphc.data", name, __all__)

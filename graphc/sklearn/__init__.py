"""Estimators of scikit-learn for functions that build graphs.

scikit-learn is imported when a name is first used: `from graphc import *` works without it.
"""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphc.sklearn.classifier import Classifier as Classifier
    from graphc.sklearn.perceptrons import mlp as mlp
    from graphc.sklearn.regressor import Regressor as Regressor
    from graphc.sklearn.transformer import Transformer as Transformer
else:  # hidden from type checkers, which would take any name for granted
    _HOMES = {
        "Classifier": "classifier",
        "Regressor": "regressor",
        "Transformer": "transformer",
        "mlp": "perceptrons",
    }
    __all__ = sorted(_HOMES)

    def __dir__() -> list[str]:
        return __all__

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            from graphc.ir.name_errors import no_function

            raise no_function(__name__, name, __all__)
        if _find_spec("sklearn") is None:
            from graphc.errors import MissingExtraError

            raise MissingExtraError(
                "graphc.sklearn needs the package scikit-learn",
                hint="pip install 'graphc[sklearn]'",
            )
        value = getattr(_import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value  # the next use does not come here
        return value

"""What mkdocstrings must know about graphc's sources: a griffe extension."""

from __future__ import annotations

from typing import Any

import griffe


class DeclaredOperators(griffe.Extension):
    """The body of a declared operator gives operands; what users call gives a tensor."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Corrects the result of functions under a decorator that declares an operator."""
        if func.decorators and str(func.returns) == "Given":
            func.returns = "Tensor"

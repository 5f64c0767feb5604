"""Which passes run, in which order, and why in that order."""

from __future__ import annotations

from typing import Final

from graphc.config import PIPELINES
from graphc.errors import AttributeValueError, nearest
from graphc.passes.base import Pass
from graphc.passes.eliminate_common import EliminateCommon
from graphc.passes.fold_constants import FoldConstants
from graphc.passes.prune import Prune
from graphc.passes.simplify_algebra import SimplifyAlgebra
from graphc.passes.simplify_shapes import SimplifyShapes

# Prune first: what nobody needs costs no other pass any time. Then algebra, which takes away the
# identities, ones and zeros of gradients that stand between other nodes; then folding, for which
# algebra has gathered constants; then shapes, which see reshapes and broadcasts meet; then CSE, to
# which all of them have made equal what is equal. They leave nodes behind that nobody uses any
# more, so prune ends the round.
_PASSES: Final[dict[str, tuple[Pass, ...]]] = {
    "default": (
        Prune(),
        SimplifyAlgebra(),
        FoldConstants(),
        SimplifyShapes(),
        EliminateCommon(),
        Prune(),
    ),
    "none": (),
}


def pipeline(name: str) -> list[Pass]:
    """The target-independent passes of the pipeline `name`, for a functional program.

    Raises:
        AttributeValueError: there is no such pipeline; the nearest name is suggested.
    """
    if name not in _PASSES:
        raise AttributeValueError(f"no pipeline {name!r}", mend=nearest(name, PIPELINES))
    return list(_PASSES[name])


def after_binding(name: str) -> list[Pass]:
    """What of the pipeline `name` is worth running again once named sizes are ints.

    Sizes used as values are then constants; shapes were as simple with names as with ints.
    """
    return [FoldConstants(), Prune()] if pipeline(name) else []

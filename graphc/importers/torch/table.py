"""The table of rules: operator -> rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from graphc.importers.torch.call import Rule
from graphc.importers.torch.families import (
    activations,
    attention,
    backward,
    composite,
    control,
    convolutions,
    creation,
    detection,
    elementwise,
    indexing,
    linear_algebra,
    losses,
    matrices,
    normalization,
    randoms,
    recurrent,
    reductions,
    resizing,
    sampling,
    scattering,
    shapes,
    sizes,
)

_FAMILIES: Final = (
    *(activations, attention, backward, composite, control, convolutions, creation, detection),
    *(elementwise, indexing, linear_algebra, losses, matrices, normalization, randoms, recurrent),
    *(reductions, resizing, sampling, scattering, shapes, sizes),
)

RULES: Final[Mapping[str, Rule]] = {
    name: rule for family in _FAMILIES for name, rule in family.RULES.items()
}

"""`Signature`: one entry point of an artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphc.errors import AttributeValueError
from graphc.ir.source import current_source


@dataclass(frozen=True)
class Signature:
    """What an entry point takes and gives.

    Attributes:
        inputs: argument name -> tensor that is fed.
        outputs: result name -> tensor or variable that is fetched.
        updates: nodes and tensors that run too: a training step. An entry point whose program
            assigns variables takes a state and gives a new one.
        sizes: named sizes to fix, such as {"batch": 32}; the others stay open.
    """

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    updates: Sequence[Any] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what in ("inputs", "outputs"):
            names = getattr(self, what)
            if not isinstance(names, Mapping) or not all(
                isinstance(name, str) and name.isidentifier() for name in names
            ):
                raise AttributeValueError(
                    f"Signature: {what} must map argument names to tensors, got {names!r}",
                    source=current_source(),
                    mend='gc.Signature({"x": x}, {"logits": logits})',
                )
        if not self.outputs and not self.updates:
            raise AttributeValueError(
                "Signature: no outputs and no updates", source=current_source()
            )

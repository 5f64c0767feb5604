"""What an importer cannot convert, collected, so that one error names all of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphc.errors import ModelImportError
from graphc.ir.source import current_source

_LISTED = 20  # refusals in one error


@dataclass(frozen=True)
class Refusal:
    """One operator of a model that is not imported.

    Attributes:
        what: the operator, by the name that its format gives it, such as "aten.foo.default".
        why: the reason, such as "is not imported", or what about its arguments is not supported.
        where: the node, or the line of the model's own source; "" if neither is known.
    """

    what: str
    why: str = "is not imported"
    where: str = ""

    def __str__(self) -> str:
        return f"{self.what} {self.why}" + (f"  ({self.where})" if self.where else "")


def refuse_all(importer: str, refusals: Iterable[Refusal], hint: str) -> None:
    """Raises one error for all refusals, each reason once with the places where it occurs.

    Args:
        importer: the public function, such as "from_onnx".

    Raises:
        ModelImportError: there is a refusal.
    """
    places: dict[tuple[str, str], list[str]] = {}
    for refusal in refusals:
        found = places.setdefault((refusal.what, refusal.why), [])
        if refusal.where and refusal.where not in found:
            found.append(refusal.where)
    if not places:
        return
    lines = [
        str(Refusal(what, why, ", ".join(where[:3]) + (", ..." if where[3:] else "")))
        for (what, why), where in places.items()
    ]
    more = [f"and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    count = "one operator" if len(lines) == 1 else f"{len(lines)} operators"
    raise ModelImportError(
        f"{importer}: {count} of the model cannot be imported",
        details=[*lines[:_LISTED], *more],
        source=current_source(),
        hint=hint,
    )

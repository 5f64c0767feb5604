"""`Catalogue`: maps names to operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphc.errors import AttributeValueError, GraphcError, UnknownNameError, nearest
from graphc.ir.opdef import OpDef
from graphc.keyed import Keyed


class Catalogue(Keyed[OpDef]):
    """Operators by name. A duplicate name is an error. An error about an unknown name suggests
    the nearest one."""

    def __init__(self, ops: Iterable[OpDef]) -> None:
        self._ops: dict[str, OpDef] = {}
        for op in ops:
            if op.name in self._ops:
                raise GraphcError(f"the catalogue has two operators named {op.name!r}")
            self._ops[op.name] = op

    def __getitem__(self, name: str) -> OpDef:
        try:
            return self._ops[name]
        except KeyError:
            raise UnknownNameError(
                f"no operator {name!r} in the catalogue", hint=self.hint_for(name)
            ) from None

    def register(self, op: OpDef) -> None:
        """Adds a user-defined operator.

        Raises:
            AttributeValueError: an operator with this name exists.
        """
        if op.name in self._ops:
            raise AttributeValueError.here(
                f"an operator named {op.name!r} already exists",
                hint="choose another name; existing nodes refer to the operator by its name",
            )
        self._ops[op.name] = op

    def hint_for(self, name: str) -> str:
        """The hint of an error about an unknown name."""
        return (
            f"{nearest(name, self._ops)} (call gc.register_op({name!r}, ...) first if it is your "
            f"own operator)"
        )

    def _keys(self) -> Mapping[str, OpDef]:
        return self._ops

"""`Signature`: one entry point of an artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from graphc.errors import AttributeValueError
from graphc.ir.names import check_length
from graphc.ir.node import Node, Tensor
from graphc.ir.source import current_source
from graphc.ir.variable import Variable
from graphc.typing import Feeds


@dataclass(frozen=True)
class Signature:
    """The inputs and results of an entry point.

    Attributes:
        inputs: argument name -> tensor that is fed.
        outputs: result name -> tensor or variable that is fetched.
        updates: nodes and tensors that also run, such as a training step. An entry point whose
            program assigns variables takes a state and returns a new one.
        sizes: named sizes to fix, such as {"batch": 32}; the others stay open.
        replicated: whether it runs on as many devices as the session's strategy uses. All its sizes
            must then be fixed. Otherwise it is for one device.
        freeze: whether variables are constants, as `gc.freeze` makes them.
        given: tensor or name -> its fixed value, such as {training: False}. For frozen signatures
            only.

    Raises:
        AttributeValueError: an argument has an invalid value.

    Examples:
        >>> x = gc.placeholder(("batch", 2), name="x")
        >>> sums = gc.reduce_sum(x, axis=1)
        >>> signature = gc.Signature({"x": x}, {"sums": sums}, sizes={"batch": 32})
        >>> signature.sizes
        {'batch': 32}
    """

    inputs: Mapping[str, Tensor | str]
    outputs: Mapping[str, Tensor | Variable | str]
    updates: Sequence[Node | Tensor | Variable | str] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    replicated: bool = False
    freeze: bool = False
    given: Feeds = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what in ("inputs", "outputs"):
            _check_names(what, getattr(self, what))
        for output, tensor in self.outputs.items():
            if not isinstance(tensor, (str, Tensor, Variable)):
                _refuse(f"output {output!r} must be a tensor or variable, got {tensor!r}")
        _check_updates(self.updates)
        _check_sizes(self.sizes)
        for what in ("replicated", "freeze"):
            if type(getattr(self, what)) is not bool:
                _refuse(f"{what} must be True or False, got {getattr(self, what)!r}")
        if self.freeze and self.updates:
            _refuse("a frozen signature has no updates", "omit updates, or freeze=True")
        if not isinstance(self.given, Mapping):
            _refuse(f"given must map tensors to values, got {self.given!r}")
        if self.given and not self.freeze:
            _refuse(
                "given is for frozen signatures only", "freeze=True, or list it among the inputs"
            )
        if not self.outputs and not self.updates:
            _refuse("no outputs and no updates")


def _check_names(what: str, names: Any) -> None:
    if not isinstance(names, Mapping) or not all(
        isinstance(name, str) and name.isidentifier() for name in names
    ):
        example = 'gc.Signature({"x": x}, {"logits": logits})'
        _refuse(f"{what} must map argument names to tensors, got {names!r}", example)
    for name in names:
        check_length(name, f"name among the {what}")


def _check_updates(updates: Any) -> None:
    if isinstance(updates, str) or not isinstance(updates, Sequence):
        _refuse(f"updates must be a list, got {updates!r}", "updates=[train]")


def _check_sizes(sizes: Any) -> None:
    if not isinstance(sizes, Mapping) or not all(
        isinstance(name, str) and type(size) is int and size >= 0 for name, size in sizes.items()
    ):
        _refuse(f"sizes must map names to ints, got {sizes!r}", 'sizes={"batch": 32}')


def _refuse(what: str, hint: str | None = None) -> NoReturn:
    raise AttributeValueError(f"Signature: {what}", source=current_source(), hint=hint)

"""`Signature`: one entry point of an artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from graphc.artifacts.vocabulary import Vocabulary
from graphc.errors import AttributeValueError
from graphc.ir.names import check_length
from graphc.ir.node import Node, Tensor
from graphc.ir.variable import Variable
from graphc.typing import ArrayTree, Feeds

MOST_EXAMPLES: Final = 1000
"""As many requests as TensorFlow Serving allows for warm-up."""


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
        buckets: open size -> the values to which the model server pads it, such as {"time": [16,
            64]}. For the size of the batch, these are the sizes of batches.
        examples: requests, as argument name -> array, that the model server runs before it takes
            others. They are stored in the file.
        vocabularies: input or output -> its `gc.Vocabulary`. `gc.save` stores it, and the loaded
            signature takes or returns strings there: the program computes with their numbers.

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
    buckets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    examples: Sequence[Mapping[str, ArrayTree]] = ()
    vocabularies: Mapping[str, Vocabulary] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what in ("inputs", "outputs"):
            _check_names(what, getattr(self, what))
        for output, tensor in self.outputs.items():
            if not isinstance(tensor, (str, Tensor, Variable)):
                _refuse(f"output {output!r} must be a tensor or variable, got {tensor!r}")
        _check_updates(self.updates)
        _check_sizes(self.sizes)
        _check_buckets(self.buckets)
        _check_examples(self.examples)
        _check_vocabularies(self.vocabularies)
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
    if not isinstance(names, Mapping):
        example = 'gc.Signature({"x": x}, {"logits": logits})'
        _refuse(f"{what} must map argument names to tensors, got {names!r}", example)
    for name in names:
        if not isinstance(name, str) or not name.isidentifier():
            _refuse(
                f"{what} must have names that Python can take as arguments, got {name!r}",
                "an exporter's names= gives them other names in the file",
            )
        check_length(name, f"name among the {what}")


def _check_updates(updates: Any) -> None:
    if isinstance(updates, str) or not isinstance(updates, Sequence):
        _refuse(f"updates must be a list, got {updates!r}", "updates=[train]")


def _check_sizes(sizes: Any) -> None:
    if not isinstance(sizes, Mapping) or not all(
        isinstance(name, str) and type(size) is int and size >= 0 for name, size in sizes.items()
    ):
        _refuse(f"sizes must map names to ints, got {sizes!r}", 'sizes={"batch": 32}')


def _check_buckets(buckets: Any) -> None:
    if not isinstance(buckets, Mapping) or not all(
        isinstance(name, str)
        and isinstance(row, Sequence)
        and len(row) > 0
        and all(type(size) is int and size > 0 for size in row)
        for name, row in buckets.items()
    ):
        _refuse(
            f"buckets must map names to lists of positive ints, got {buckets!r}",
            'buckets={"time": [16, 64]}',
        )


def _check_examples(examples: Any) -> None:
    listed = isinstance(examples, Sequence) and not isinstance(examples, str)
    if not listed or not all(isinstance(row, Mapping) for row in examples):
        _refuse("examples must be a list of mappings", 'examples=[{"x": values}]')
    if len(examples) > MOST_EXAMPLES:
        _refuse(f"at most {MOST_EXAMPLES} examples are allowed, got {len(examples)}")


def _check_vocabularies(vocabularies: Any) -> None:
    if not isinstance(vocabularies, Mapping) or not all(
        isinstance(name, str) and isinstance(each, Vocabulary)
        for name, each in vocabularies.items()
    ):
        _refuse(
            f"vocabularies must map names to gc.Vocabulary, got {vocabularies!r}",
            'vocabularies={"label": gc.Vocabulary(["cat", "dog"])}',
        )


def _refuse(what: str, hint: str | None = None) -> NoReturn:
    raise AttributeValueError.here(f"Signature: {what}", hint=hint)

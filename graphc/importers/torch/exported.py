"""`Exported`: an exported program as the importer reads it, whoever has read it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np


class Stored(NamedTuple):
    """A parameter, buffer or constant.

    Attributes:
        key: equal for tensors that are one tensor.
        trainable: whether it has gradients.
        bytes: its size.
        read: gives its value, and may raise `Refused`.
        member: what part of a file holds its bytes; None if it is in no file.
    """

    key: Hashable
    trainable: bool
    bytes: int
    read: Callable[[], np.ndarray[Any, Any]]
    member: str | None = None


MUTATIONS: Final = ("BUFFER_MUTATION", "PARAMETER_MUTATION")


class Result(NamedTuple):
    """A result of the graph.

    Attributes:
        kind: "USER_OUTPUT", "BUFFER_MUTATION" and the other names of `torch.export`.
        weight: for one of `MUTATIONS`, the buffer or parameter that gets it.
    """

    kind: str
    weight: str = ""


@dataclass(frozen=True)
class Exported:
    """An exported program, functional.

    Attributes:
        module: its graph, in the form of `torch.fx`: `module.graph.nodes`, and so on.
        name: of the module's class, or of the file.
        sizes: symbol of the program -> the name that the user gave the size.
        held: placeholder -> the parameter or buffer that it is.
        constants: placeholder -> the constant that it is.
        tensors: the parameters, buffers and constants by name.
        results: those of the graph, in order.
        nest: (results that are tensors) -> what the module returns.
        is_file: whether it is from a file, so that operators have no decompositions.
    """

    module: Any
    name: str
    sizes: Mapping[str, str]
    held: Mapping[str, str]
    constants: Mapping[str, str]
    tensors: Callable[[str], Stored]
    results: Sequence[Result]
    nest: Callable[[Sequence[Any]], Any]
    is_file: bool = False

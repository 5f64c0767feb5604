"""`Input` messages, which hold tf.train.Examples, to the inputs of a signature."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.data.records import FixedLen, parse_examples
from graphc.errors import GraphcError
from graphc.serving.protocol.checks import Types
from graphc.serving.protocol.rows import row_shape
from graphc.serving.protocol.tensors import STRING
from graphc.web.failures import Failure


def read_input(message: Any, types: Types) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an Input: each input of the signature is a feature of the same name.

    Features of the context hold for all examples that do not have them.

    Raises:
        Failure: INVALID_ARGUMENT: there is no example, an example does not parse, a feature is
            missing or has another number of values, or the signature does not take examples.
    """
    kind = message.WhichOneof("kind")
    examples = list(getattr(message, kind).examples) if kind else []
    if not examples:
        raise Failure("INVALID_ARGUMENT", "input has no examples")
    if kind == "example_list_with_context":
        # Joined messages are merged messages: of two features of one name, the later one counts.
        context = message.example_list_with_context.context
        examples = [context + example for example in examples]
    specs = {}
    for name, type in types.items():
        dtype: Any = bytes if type.dtype == STRING else type.dtype
        specs[name] = FixedLen(row_shape(name, type), dtype)
    try:
        return dict(parse_examples(examples, specs))  # type: ignore[arg-type]
    except GraphcError as error:
        raise Failure("INVALID_ARGUMENT", " ".join([error.what, *error.details])[:500]) from None

"""`to_onnx`: one signature as an ONNX model."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from graphc._version import __version__
from graphc.artifacts.exporting import SignatureProgram, program_of
from graphc.artifacts.signature import Signature
from graphc.config import CompileOptions
from graphc.errors import AttributeValueError, ModelExportError
from graphc.exporters.core.files import write
from graphc.exporters.core.inference import check_calls, check_signature, state_values
from graphc.exporters.onnx.aside import LARGEST, Aside
from graphc.exporters.onnx.program import ProgramWriter
from graphc.ir.dims import substitute
from graphc.ir.extras import importing
from graphc.ir.node import Tensor
from graphc.ir.rewrite import map_dims
from graphc.runtime.feeds.fetches import resolve_feed
from graphc.runtime.session import Session
from graphc.runtime.targets.prepare import UnusedFeedError

OLDEST: Final = 16
DEFAULT: Final = 21


def to_onnx(
    session: Session,
    path: str | os.PathLike[str],
    signature: Signature,
    *,
    opset: int = DEFAULT,
    names: Mapping[str, str] | None = None,
    external_data: bool | None = None,
) -> None:
    """Writes a signature as an ONNX model, with the values of its variables (extra `onnx`).

    Open sizes stay open, under their names. The model is for inference: a signature with updates is
    refused, and so are random numbers. Write what a trained model predicts by a signature with
    `freeze=True` and `given={training: False}`. The model is checked before it is written, and the
    file is replaced as a whole.

    Args:
        path: the file to write.
        signature: the inputs and outputs of the model.
        opset: the version of ONNX's operators, 16 or later.
        names: input or output of the signature -> its name in the model, such as {"input_1":
            "input.1"}. The others keep the names of the signature.
        external_data: whether large variables are in a file next to the model, whose name is that
            of the model, a digest and ".data". By default if the model has more than 1.9 GB, which
            its format cannot hold. The file of an earlier model under this path is removed.

    Raises:
        ModelExportError: ONNX cannot express some nodes, and the error names them all with your
            lines; or the file cannot be written.
        ArtifactError, FeedError, FetchError, UnknownNameError: the signature does not fit the
            graph.
        AttributeValueError: an argument has an invalid value.
        MissingExtraError: the package onnx is not installed.

    Examples:
        >>> import os, tempfile, onnx
        >>> x = gc.placeholder(("batch", 2), name="x")
        >>> w = gc.variable([[1.0], [2.0]], name="w")
        >>> signature = gc.Signature({"x": x}, {"y": gc.nn.relu(x @ w)})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "model.onnx")
        ...     gc.to_onnx(gc.Session(graph), path, signature)
        ...     model = onnx.load(path)
        >>> [node.op_type for node in model.graph.node], model.graph.initializer[0].name
        (['MatMul', 'Relu'], 'w')
    """
    renamed = _check(signature, opset, names, external_data)
    aside = Aside(external_data)
    model = _model(session, signature, opset, renamed, aside)
    size = model.ByteSize()
    if not aside.is_used and size > LARGEST:
        raise ModelExportError.here(
            f"to_onnx: the model has {size} bytes, and the format holds at most 2 GiB",
            hint="external_data=True",
        )
    _checked(aside.as_inputs(model))
    target = Path(path)
    kept = ""
    if aside.is_used:
        # Named by its content: until the new model is there, the old one keeps its own file.
        kept = f"{target.name}.{aside.digest()}.data"
        aside.refer_to(model, kept)
        write(target.with_name(kept), aside.content())
    write(path, model.SerializeToString())
    for old in target.parent.glob(f"{glob.escape(target.name)}.{'[0-9a-f]' * 16}.data"):
        if old.name != kept:
            old.unlink(missing_ok=True)


def _check(
    signature: Signature, opset: int, names: Mapping[str, str] | None, external_data: bool | None
) -> dict[str, str]:
    """Checks the arguments. Returns the name in the model of each input and output."""
    check_signature("to_onnx", "ONNX models", signature)
    with importing("to_onnx: the package onnx is not installed", "onnx"):
        from onnx import defs
    newest = defs.onnx_opset_version()
    if type(opset) is not int or not OLDEST <= opset <= newest:
        raise _wrong(
            f"opset must be an int from {OLDEST} to {newest}, got {opset!r}",
            "newer versions come with a newer package onnx",
        )
    if external_data is not None and type(external_data) is not bool:
        raise _wrong(f"external_data must be a bool, got {external_data!r}", "True or False")
    return _names(signature, {} if names is None else names)


def _names(signature: Signature, names: object) -> dict[str, str]:
    own = [*signature.inputs, *signature.outputs]
    if not isinstance(names, Mapping):
        raise _wrong(f"names must be a dict, got {names!r}", 'names={"input_1": "input.1"}')
    for name, wanted in names.items():
        if name not in own:
            raise _wrong(
                f"names has {name!r}, which is no input or output", f"one of {', '.join(own)}"
            )
        if not isinstance(wanted, str) or not wanted:
            raise _wrong(f"the name of {name!r} must be a string, got {wanted!r}", "")
    found = {name: names.get(name, name) for name in own}
    both = set(signature.inputs) & set(signature.outputs)
    if both or len(set(found.values())) < len(found):
        raise _wrong(
            "two inputs or outputs have one name", "ONNX needs different names for all of them"
        )
    return found


def _wrong(what: str, hint: str) -> AttributeValueError:
    return AttributeValueError.here(f"to_onnx: {what}", hint=hint)


def _model(
    session: Session, signature: Signature, opset: int, names: Mapping[str, str], aside: Aside
) -> Any:
    from onnx import helper

    taken, unused = _program(session, signature)
    program = map_dims(taken.program, lambda dim: substitute(dim, taken.names))
    arrays = state_values("to_onnx", session, taken)
    check_calls("to_onnx", program)
    fetches = program.ports("fetch")
    outputs = [
        (names[output], fetches[place].tensor)
        for output, place in zip(signature.outputs, taken.places, strict=False)
    ]
    writer = ProgramWriter(program, arrays, opset, names)
    extra = {names[argument]: tensor for argument, tensor in unused.items()}
    graph = writer.write(
        session.graph.name, [names[n] for n in signature.inputs], outputs, extra, aside
    )
    versions = [helper.make_opsetid("", opset)]
    return helper.make_model(
        graph,
        opset_imports=versions,
        ir_version=helper.find_min_ir_version_for(versions),
        producer_name="graphc",
        producer_version=__version__,
    )


def _program(session: Session, signature: Signature) -> tuple[SignatureProgram, dict[str, Tensor]]:
    """The program of the signature, and the inputs that it does not use: a model may have some."""
    options = CompileOptions(pipeline="O1", sparse_updates="off")
    unused: dict[str, Tensor] = {}
    while True:
        inputs = {n: t for n, t in signature.inputs.items() if n not in unused}
        try:
            return program_of(session, "main", replace(signature, inputs=inputs), options), unused
        except UnusedFeedError as error:
            for name, fed in inputs.items():
                tensor = resolve_feed(session.graph, fed)
                if any(tensor is each for each in error.feeds):
                    unused[name] = tensor


def _checked(model: Any) -> None:
    """Raises ModelExportError if ONNX's checker refuses the model, which is a fault of ours."""
    from onnx import checker

    try:
        checker.check_model(model, full_check=True)
    except Exception as error:
        raise ModelExportError.here(
            "to_onnx: ONNX's checker refuses the model, which is a fault of graphc",
            details=[str(error).strip()],
            hint="please report it with your graph",
        ) from error

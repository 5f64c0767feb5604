"""`to_iree`: one signature as a module of IREE, a runtime without Python."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Final

import jax

from graphc.artifacts.exporting import program_of
from graphc.artifacts.signature import Signature
from graphc.config import CompileOptions
from graphc.errors import AttributeValueError, ModelExportError
from graphc.exporters.core.files import write
from graphc.exporters.core.inference import check_calls, check_signature, state_values
from graphc.ir.extras import importing
from graphc.ir.program import Program
from graphc.lowering.emit_jax import needs_x64, to_function
from graphc.runtime.session import Session

_TARGETS: Final = {
    "host": ["--iree-llvmcpu-target-cpu=host"],
    "x86_64": [
        "--iree-llvmcpu-target-triple=x86_64-linux-gnu",
        "--iree-llvmcpu-target-cpu=generic",
    ],
    "android-arm64": [
        "--iree-llvmcpu-target-triple=aarch64-linux-android29",
        "--iree-llvmcpu-target-cpu=generic",
    ],
}
_FOR_ALL: Final = [
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
]
# Operations of StableHLO that IREE does not compile, and operators of graphc that become them.
_NOT_COMPILED: Final = re.compile(
    r"stablehlo\.(custom_call|cholesky|triangular_solve|infeed|outfeed|send|recv)\b"
)
_BY_LIBRARIES: Final = frozenset({
    "Cholesky", "CholeskyUpdate", "Determinant", "Eig", "Eigh", "EighTridiagonal", "Hessenberg",
    "HouseholderProduct", "Inverse", "LU", "LogDeterminant", "MatrixExponential",
    "MatrixSquareRoot", "Polar", "PseudoInverse", "QR", "SVD", "Schur", "SingularValues", "Solve",
    "Sylvester", "TriangularSolve", "TridiagonalSolve",
})  # fmt: skip


def to_iree(
    session: Session, path: str | os.PathLike[str], signature: Signature, *, target: str = "host"
) -> None:
    """Compiles a signature with IREE, with the values of its variables (extra `iree`).

    The module's function `main` takes the inputs in the order of the signature and returns its
    outputs. IREE's runtime runs it without Python, on phones too. Sizes must be fixed. Models are
    for inference: a signature with updates is refused, and so are random numbers.

    Args:
        path: the file to write, usually .vmfb. It is replaced as a whole.
        target: "host" for the processor of this machine, "x86_64" for any of its kind, or
            "android-arm64".

    Raises:
        ModelExportError: IREE cannot compile the program; the error names the nodes, if they are
            known. Or sizes are open, or the file cannot be written.
        AttributeValueError: an argument has an invalid value.
        FeedError, FetchError, UnknownNameError: the signature does not fit the graph.
        MissingExtraError: the compiler of IREE is not installed.

    Examples:
        >>> x = gc.placeholder(("batch", 2), name="x")
        >>> signature = gc.Signature({"x": x}, {"double": x * 2}, sizes={"batch": 1})
        >>> gc.to_iree(gc.Session(graph), "double.vmfb", signature)  # doctest: +SKIP
    """
    check_signature("to_iree", "IREE modules", signature)
    if target not in _TARGETS:
        raise AttributeValueError.here(
            f"to_iree: there is no target {target!r}", hint=f"one of {', '.join(_TARGETS)}"
        )
    compiler = _compiler()
    text = _module(session, signature)
    flags = [*_FOR_ALL, *_TARGETS[target]]
    try:
        code = compiler.compile_str(text, input_type="stablehlo", extra_args=flags)
    except Exception as error:  # CompilerToolError, with the compiler's whole output
        raise ModelExportError.here(
            "to_iree: IREE cannot compile the program",
            details=_errors(str(error)),
            hint="gc.to_stablehlo writes the program that it was given",
        ) from error
    write(path, code)


def _compiler() -> Any:
    with importing("to_iree: the compiler of IREE is not installed", "iree"):
        from iree import compiler
    return compiler


def _errors(text: str) -> list[str]:
    """The lines of the compiler's output that say what is wrong."""
    found = [line.strip() for line in text.splitlines() if "error:" in line]
    return [re.sub(r"^.*?error: ", "", line)[:300] for line in found[:5]]


def _module(session: Session, signature: Signature) -> str:
    """The signature as StableHLO, with its variables as constants.

    Raises:
        ModelExportError: sizes are open, or IREE does not compile some operations.
    """
    options = CompileOptions(pipeline="O1", sparse_updates="off")
    taken = program_of(session, "main", signature, options)
    program = taken.program
    _check_sizes(program)
    check_calls("to_iree", program)
    arrays = state_values("to_iree", session, taken)
    feeds = {port.name: port.tensor.type for port in program.ports("feed")}
    call, places = to_function(program), taken.places[: len(signature.outputs)]

    def main(*values: Any) -> Sequence[Any]:
        given = arrays | dict(zip(signature.inputs, values, strict=True))
        found = call(*[given[port.name] for port in program.inputs])
        return [found[place] for place in places]

    shapes: Any = [jax.ShapeDtypeStruct(feeds[n].shape, feeds[n].dtype) for n in signature.inputs]
    with jax.enable_x64(needs_x64(program)):
        lowered = jax.jit(main, keep_unused=True).lower(*shapes)
    text = lowered.as_text()
    if _NOT_COMPILED.search(text):
        raise _refused(program, sorted({m.group() for m in _NOT_COMPILED.finditer(text)}))
    return text


def _check_sizes(program: Program) -> None:
    if program.symbols():
        names = ", ".join(program.symbols())
        raise ModelExportError.here(
            f"to_iree: the sizes {names} are open, and IREE compiles fixed sizes",
            hint=f"gc.Signature(..., sizes={{{program.symbols()[0]!r}: 1}})",
        )


def _refused(program: Program, operations: Sequence[str]) -> ModelExportError:
    nodes = [node for node in program.walk() if node.op.name in _BY_LIBRARIES]
    named = [f"{node.op.name} {node.name!r}  {node.source or ''}".rstrip() for node in nodes]
    return ModelExportError.here(
        f"to_iree: IREE does not compile {', '.join(operations)}",
        details=named,
        hint="give the signature outputs that do not depend on these nodes",
    )

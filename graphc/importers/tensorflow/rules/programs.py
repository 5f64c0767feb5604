"""Programs of XLA inside a graph, as `jax2tf` and graphc write them."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.errors import ModelFileError, ModelImportError
from graphc.importers.stablehlo.calls import NotImportedError, call_program
from graphc.importers.tensorflow.registry import Call, Family
from graphc.ir.node import Tensor

FAMILY = Family()


@FAMILY.rule("XlaCallModule")
def xla_call_module(call: Call, *operands: Tensor) -> Sequence[Tensor]:
    if call.attr("function_list"):
        call.refuse("calls functions of TensorFlow")
    if call.attr("has_token_input_output", False):
        call.refuse("has tokens, which order its effects")
    platforms = [name.decode().upper() for name in call.attr("platforms", [])]
    if platforms and "CPU" not in platforms:
        call.refuse(f"is for {', '.join(platforms)}")
    platform = platforms.index("CPU") if len(platforms) > 1 else None
    try:
        return call_program(call.attr("module", b""), operands, platform)
    except NotImportedError as error:
        call.refuse(str(error))
    except (ModelFileError, ModelImportError) as error:
        call.refuse(f"has a program that is not imported: {error.what}")

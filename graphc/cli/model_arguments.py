"""The arguments of `graphc compare` and `graphc import`."""

from __future__ import annotations

from graphc.cli.parser import Parser
from graphc.cli.shared_arguments import (
    add_fetch,
    add_json,
    add_pipeline,
    add_platforms,
    add_progress,
    add_size,
    add_tolerance,
    positive,
    takes_script,
)


def add_compare_arguments(parser: Parser) -> None:
    """Finds the first node of a script's training step whose values in two runs differ by more than
    rounding explains.

    graphc compare examples/digits_cnn.py --against none
    graphc compare examples/digits_cnn.py --after fold-constants --against before:fold-constants
    graphc compare examples/digits_cnn.py --record old.record
    graphc compare examples/digits_cnn.py --against old.record --plot growth.png
    graphc compare model.onnx

    A model file is imported and run on random inputs: an ONNX file against onnxruntime.

    The exit code is 1 if there is such a node.
    """
    takes_script(parser)
    add_fetch(parser)
    add_pipeline(parser)
    parser.add_argument("--precision", choices=("bf16", "f16"), help="the precision of products")
    parser.add_argument("--device", metavar="NAME", help="where it runs, such as /gpu:0")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--before", metavar="PASS", help="run the program before this pass")
    which.add_argument("--after", metavar="PASS", help="run the program after this pass")
    which.add_argument(
        "--passes",
        metavar="PASS,PASS",
        help="run the program after these passes only, each with its options: a,b{option=1}",
    )
    parser.add_argument(
        "--against",
        metavar="WHAT",
        help="the other run: none (no passes, the default), a pipeline, bf16, f16, before:PASS, "
        "after:PASS, a device, or a file written by --record",
    )
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="write all values of the run to a file, for --against in another environment",
    )
    parser.add_argument("--steps", type=positive, metavar="N", help="train for so many steps first")
    parser.add_argument("--plot", metavar="FILE", help="draw the error's growth (PNG or SVG)")
    parser.add_argument(
        "--rows", type=positive, default=40, metavar="N", help="rows of the table (default: 40)"
    )
    add_progress(parser)
    add_json(parser)


def add_import_arguments(parser: Parser) -> None:
    """Imports a model of another framework and writes it as an artifact, for graphc run and serve.

    graphc import resnet50.onnx -o resnet50.gcx --validate
    graphc import bert.onnx --trainable "classifier.*"
    graphc import program.mlir
    graphc import saved_model_folder --signature serving_default

    The format is that of the file: .onnx, .pb, .pbtxt, .meta, .mlir, .stablehlo, .jax, .pt2,
    .tflite, or the folder of a SavedModel.
    """
    parser.set_defaults(module="import_model")
    parser.add_argument("file", metavar="FILE", help="the model: a file, or a folder")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the artifact (default: NAME.gcx in this folder)"
    )
    parser.add_argument(
        "--trainable",
        metavar="NAME,NAME",
        help="the weights that training updates: patterns such as 'classifier.*', or all or none",
    )
    add_size(parser)
    parser.add_argument(
        "--result",
        action="append",
        default=[],
        dest="results",
        metavar="NAME",
        help="a result of a GraphDef; may be repeated",
    )
    parser.add_argument(
        "--signature", metavar="NAME", help="the signature of a SavedModel or .tflite"
    )
    add_platforms(parser)
    parser.add_argument(
        "--validate",
        action="store_true",
        help="run the file in its own framework too, on the same random inputs, and print errors "
        "and latencies; exit code 1 if they differ",
    )
    add_tolerance(parser, "how large an error may be, as a fraction of the largest value")
    add_json(parser)

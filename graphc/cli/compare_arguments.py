"""The arguments of `graphc compare`."""

from __future__ import annotations

from graphc.cli.parser import Parser
from graphc.cli.shared_arguments import (
    add_json,
    add_pipeline,
    add_progress,
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

    The exit code is 1 if there is such a node.
    """
    takes_script(parser)
    parser.add_argument(
        "--fetch",
        action="append",
        default=[],
        metavar="NAME",
        help="a tensor, node or variable to run instead of the training step; may be repeated",
    )
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
        help="the other run: none (no passes, the default), a pipeline, bf16 or f16, before:PASS or "
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

"""The arguments of `graphc scale`."""

from __future__ import annotations

from graphc.cli.parser import Parser
from graphc.cli.shared_arguments import add_fetches, add_json, counts, seconds, takes_script


def add_scale_arguments(parser: Parser) -> None:
    """Predicts time, memory and efficiency of a script's training step on many devices.

    graphc scale examples/digits_cnn.py --devices 8..4096 --machine 8xh100 --plot scaling.png
    """
    takes_script(parser)
    add_fetches(parser)
    parser.add_argument(
        "--machine",
        metavar="NAME",
        required=True,
        help="machines of these GPUs, such as 8xh100, or a file: see docs/scaling.md",
    )
    parser.add_argument(
        "--devices",
        type=counts,
        default=[1, 8, 64, 512],
        metavar="N..M|N,M",
        help="numbers of devices; N..M doubles from N to M (default: 1,8,64,512)",
    )
    parser.add_argument(
        "--fixed-batch",
        action="store_true",
        help="all devices share the script's batch (default: it is the batch of each device)",
    )
    parser.add_argument(
        "--step-seconds",
        type=seconds,
        metavar="X",
        help="the measured time of a step on one device, instead of an estimate",
    )
    parser.add_argument("--plot", metavar="FILE", help="write a picture (extra plot)")
    add_json(parser)

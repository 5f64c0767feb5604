"""Arguments shared by several commands, and functions that parse their values."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

from graphc.config import PIPELINES
from graphc.errors import nearest

SCRIPT = "a Python file with a function build() that returns a gc.train.Job"


def takes_script(parser: argparse.ArgumentParser, what: str = SCRIPT) -> None:
    """Adds the script argument. Arguments after `--` go to the script."""
    parser.add_argument(
        "script", metavar="SCRIPT", help=f"{what}; arguments after -- become its sys.argv"
    )
    parser.set_defaults(takes_arguments=True)


def add_devices(parser: argparse.ArgumentParser) -> None:
    """`--devices`."""
    parser.add_argument(
        "--devices",
        type=positive,
        default=1,
        metavar="N",
        help="split each batch across N devices (the CPU acts as N devices if necessary)",
    )


def add_machine(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """`--machine`. With it, the default of `--devices` is None, which means all devices of the
    machine."""
    parser.add_argument(
        "--machine",
        metavar="NAME",
        required=required,
        help="compile for GPUs that this machine need not have: 8xh100, or a file written by "
        "graphc devices --describe; by default each batch is split across all of them",
    )
    parser.set_defaults(devices=None)


def add_cache_dir(parser: argparse.ArgumentParser) -> None:
    """`--cache-dir`."""
    parser.add_argument(
        "--cache-dir",
        metavar="FOLDER",
        help="the folder for compiled programs, instead of the default folder",
    )


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    """`--pipeline`."""
    parser.add_argument(
        "--pipeline", choices=PIPELINES, default="O2", help="the passes that run (default: O2)"
    )


def add_fetch(
    parser: argparse.ArgumentParser,
    help: str = "a tensor, node or variable to run instead of the training step; may be repeated",
) -> None:
    """`--fetch`."""
    parser.add_argument("--fetch", action="append", default=[], metavar="NAME", help=help)


def add_fetches(parser: argparse.ArgumentParser) -> None:
    """`--fetch` and `--feed`."""
    add_fetch(parser, "a tensor, node or variable to fetch instead of the training step")
    parser.add_argument(
        "--feed",
        action="append",
        default=[],
        type=feed,
        metavar="NAME=SHAPE",
        help="the shape of a feed, such as x=32,784 (default: the shape in the job's batches)",
    )


def add_platforms(parser: argparse.ArgumentParser) -> None:
    """`--platforms`."""
    parser.add_argument(
        "--platforms",
        type=lambda text: text.split(","),
        default=["cpu", "cuda"],
        metavar="P,P",
        help="the target platforms, among cpu, cuda, rocm and tpu (default: cpu,cuda)",
    )


def add_size(
    parser: argparse._ActionsContainer,
    help: str = "the value of a named size of the model; may be repeated",
) -> None:
    """`--size`, by default of imported models."""
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        type=size,
        metavar="NAME=N",
        help=help,
    )


def add_formats(parser: argparse.ArgumentParser) -> None:
    """`--to` of `graphc export`, and the options of its formats."""
    parser.add_argument(
        "--to",
        choices=["onnx", "saved-model", "safetensors", "iree", "stablehlo"],
        help="write FILE in this format, and no artifact",
    )
    parser.add_argument(
        "--signature", metavar="NAME", help="with --to: the signature, if there are several"
    )
    add_size(parser)
    parser.add_argument(
        "--opset", type=int, metavar="N", help="with --to onnx: the version of the operators"
    )
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="with --to iree: host (default), x86_64 or android-arm64",
    )


def add_tolerance(parser: argparse.ArgumentParser, text: str) -> None:
    """`--tolerance`; `text` is its help."""
    parser.add_argument(
        "--tolerance",
        type=tolerance,
        metavar="X",
        help=f"{text} (default: by dtype; 1e-4 for float32)",
    )


def add_progress(parser: argparse.ArgumentParser) -> None:
    """`--no-progress`."""
    parser.add_argument("--no-progress", action="store_true", help="no progress bar")


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON for other programs")


def chosen(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The options of these names, as keyword arguments of the function that takes them."""
    return {name: getattr(options, name) for name in names}


def action(text: str, command: str, known: Sequence[str]) -> str:
    """One of the `known` actions of a command."""
    if text not in known:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an action of {command}; {nearest(text, known)}"
        )
    return text


def positive(text: str) -> int:
    """An int of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def counts(text: str) -> list[int]:
    """Numbers of devices: `8,64`, or `8..64` for 8, 16, 32 and 64."""
    first, dots, last = text.partition("..")
    if not dots:
        return [positive(part.strip()) for part in text.split(",")]
    low, high = positive(first.strip()), positive(last.strip())
    if low > high:
        raise argparse.ArgumentTypeError(f"{text!r} ends below its start")
    doubled = [low]
    while doubled[-1] < high:
        doubled.append(min(2 * doubled[-1], high))
    return doubled


def seconds(text: str) -> float:
    """A number above 0."""
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def tolerance(text: str) -> float:
    """A number of at least 0."""
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def number(text: str) -> float:
    """The number, or -1 if the text is not a finite number."""
    try:
        value = float(text)
    except ValueError:
        return -1.0
    return value if math.isfinite(value) else -1.0


def pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def size(text: str) -> tuple[str, int]:
    """`NAME=N`."""
    name, _, size = text.partition("=")
    if not name or not size.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=N")
    return name, int(size)


def feed(text: str) -> tuple[str, tuple[int, ...]]:
    """`NAME=SIZE,SIZE`."""
    name, equals, shape = text.partition("=")
    sizes = [size.strip() for size in shape.strip("()").split(",") if size.strip()]
    if not name or not equals or not all(size.isdecimal() for size in sizes):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=SIZE,SIZE,...")
    return name, tuple(map(int, sizes))

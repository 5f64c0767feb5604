"""The arguments of every command, with their help."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from graphc._version import __version__
from graphc.config import PIPELINES
from graphc.errors import nearest

_SCRIPT = "a Python file with a function build() that returns a gc.train.Job"


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def __init__(self, **options: Any) -> None:
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(formatter_class=formatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command; `command` is its name, `arguments` what stands after `--`.

    Raises:
        SystemExit: code 2 after one line for arguments that do not parse; 0 after help.
    """
    own, after = _split(arguments)
    parser = _Parser(
        prog="graphc",
        description="Trains, compiles, exports and runs model graphs through JAX and XLA.",
        epilog="graphc COMMAND --help explains a command, with an example.",
    )
    parser.add_argument("--version", action="version", version=f"graphc {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    parsers = {name: _add(commands, name, add) for name, add in _COMMANDS.items()}
    first = next((argument for argument in own if not argument.startswith("-")), None)
    if first is not None and first not in parsers:
        parser.error(f"no command {first!r}; {nearest(first, parsers)}")
    options, unknown = parser.parse_known_args(own)
    chosen = parsers[options.command]
    if unknown:
        known = re.findall(r"--[\w-]+", chosen.format_help())
        hint = nearest(unknown[0], known) if unknown[0].startswith("-") else None
        chosen.error(f"unexpected {unknown[0]!r}" + (f"; {hint}" if hint else ""))
    if after and not chosen.get_default("takes_arguments"):
        chosen.error("there is no script that could take what stands after --")
    options.arguments = after
    return options


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    given = list(arguments)
    at = given.index("--") if "--" in given else len(given)
    return given[:at], given[at + 1 :]


def _add(commands: Any, name: str, add: Callable[[_Parser], None]) -> _Parser:
    text, _, example = (add.__doc__ or "").partition("\n\n")
    example = "\n".join(line.strip() for line in example.strip().splitlines())
    parser: _Parser = commands.add_parser(
        name,
        help=text,
        description=text,
        epilog="example:\n  " + example.replace("\n", "\n  "),
    )
    add(parser)
    return parser


# Each docstring is the help: its first paragraph says what the command does, the rest is an
# example.


def _train(parser: _Parser) -> None:
    """Runs a script's training job, evaluates it, and saves it.

    graphc train examples/digits_cnn.py --devices 4 --steps 400 --save digits.gcx
    """
    _takes_script(parser)
    _add_devices(parser)
    parser.add_argument("--steps", type=_positive, metavar="N", help="instead of the job's own")
    parser.add_argument("--save", metavar="FILE", help="write the job's signatures there")
    _add_cache_dir(parser)
    _add_progress(parser)
    _add_json(parser)


def _compile(parser: _Parser) -> None:
    """Compiles a script's training step ahead of time and says what that gave.

    graphc compile examples/digits_cnn.py --fetch logits --feed x=32,8,8,1
    graphc compile examples/digits_cnn.py --machine 8xh100 --cache-dir shipped
    """
    _takes_script(parser)
    _add_fetches(parser)
    _add_devices(parser)
    _add_machine(parser, required=False)
    _add_cache_dir(parser)
    _add_json(parser)


def _run(parser: _Parser) -> None:
    """Runs one signature of an artifact on arrays from files.

    graphc run digits.gcx --signature predict --input x=images.npy --output answers.npz
    """
    parser.add_argument("artifact", metavar="ARTIFACT", help="a file that gc.save wrote")
    parser.add_argument(
        "--signature", metavar="NAME", help="which entry point; may be left out if there is one"
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        type=_pair,
        metavar="NAME=FILE",
        help="an input, and the .npy file that holds it; once for each",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write the results there as .npz (types that NumPy lacks as float32 or int8) "
        "instead of printing them",
    )
    _add_json(parser)


def _inspect(parser: _Parser) -> None:
    """Shows what is in a script's graph, or in an artifact.

    graphc inspect examples/digits_cnn.py --cost
    graphc inspect examples/digits_cnn.py --passes --after eliminate-common
    graphc inspect digits.gcx
    """
    parser.add_argument("target", metavar="SCRIPT|ARTIFACT", help=f"{_SCRIPT}; or an artifact")
    parser.set_defaults(takes_arguments=True)
    parser.add_argument("--graph", action="store_true", help="the graph as text")
    parser.add_argument(
        "--passes",
        action="store_true",
        help="what each pass did: nodes, time, and what the program after it costs",
    )
    for which in ("before", "after"):
        parser.add_argument(
            f"--{which}",
            metavar="PASS",
            help=f"the program {which} a pass, as text; prune:2 for its second run",
        )
    _add_pipeline(parser)
    _add_devices(parser)
    parser.add_argument(
        "--cost", action="store_true", help="operations and bytes of each operator and node"
    )
    parser.add_argument("--stablehlo", action="store_true", help="the StableHLO text")
    _add_fetches(parser)
    _add_json(parser)


def _tune(parser: _Parser) -> None:
    """Finds the fastest way to compile a script's training step here; later runs use it unasked.

    graphc tune examples/digits_cnn.py --seconds 300
    graphc tune examples/digits_cnn.py --machine 8xh100

    For a machine that is not here it ranks by estimates, and keeps nothing.
    """
    _takes_script(parser)
    _add_fetches(parser)
    _add_devices(parser)
    _add_machine(parser, required=False)
    _add_pipeline(parser)
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=120.0,
        metavar="N",
        help="how long it may take (default: 120)",
    )
    parser.add_argument(
        "--loop",
        type=_positive,
        metavar="N",
        help="N steps in one call, as Session.run_steps makes them",
    )
    _add_tolerance(parser, "how far results may differ, as a part of the largest value")
    _add_progress(parser)
    _add_json(parser)


def _export(parser: _Parser) -> None:
    """Writes a script's signatures to an artifact, with their first weights or after training.

    graphc export examples/digits_cnn.py digits.gcx --platforms cpu,cuda --steps 400
    graphc export examples/digits_cnn.py digits.gcx --validate
    """
    _takes_script(parser)
    parser.add_argument("file", metavar="FILE", help="the artifact to write")
    _add_devices(parser)
    parser.add_argument(
        "--platforms",
        type=lambda text: text.split(","),
        default=["cpu", "cuda"],
        metavar="P,P",
        help="what it will run on, among cpu, cuda, rocm and tpu (default: cpu,cuda)",
    )
    parser.add_argument(
        "--steps", type=_positive, metavar="N", help="train for so many steps first"
    )
    parser.add_argument(
        "--validate",
        action="store_true",
        help="run the graph here and the file in a new process on the same inputs, and write "
        "errors and latencies to FILE with the ending .validation.json; exit code 1 if they differ",
    )
    _add_tolerance(parser, "how large an error may be, as a part of the largest value")
    _add_progress(parser)
    _add_json(parser)


def _devices(parser: _Parser) -> None:
    """Lists the devices of this machine by the names that gc.device takes.

    graphc devices --json
    graphc devices --describe machine.toml
    """
    parser.add_argument(
        "--describe",
        metavar="FILE",
        help="write a description of the GPUs of this machine, for --machine FILE elsewhere",
    )
    _add_json(parser)


def _plan(parser: _Parser) -> None:
    """Says whether a script's training step fits into a machine, and the largest batch that does.

    graphc plan examples/digits_cnn.py --machine 8xh100 --largest-batch
    """
    _takes_script(parser)
    _add_fetches(parser)
    _add_devices(parser)
    _add_machine(parser, required=True)
    parser.add_argument(
        "--largest-batch",
        action="store_true",
        help="look for the largest batch, and recompute what saves memory",
    )
    _add_progress(parser)
    _add_json(parser)


def _cache(parser: _Parser) -> None:
    """Lists or removes the compiled programs that are kept for later processes.

    graphc cache list
    graphc cache clear --folder /data/me/compiled
    """
    parser.add_argument(
        "action",
        metavar="list|clear|size",
        type=_action,
        help="what is kept and what it saves; remove all of it; how much room it takes",
    )
    parser.add_argument(
        "--folder", metavar="FOLDER", help="instead of the default: see CompileOptions(cache=...)"
    )
    _add_json(parser)


_COMMANDS: dict[str, Callable[[_Parser], None]] = {
    "train": _train,
    "compile": _compile,
    "run": _run,
    "inspect": _inspect,
    "tune": _tune,
    "export": _export,
    "plan": _plan,
    "devices": _devices,
    "cache": _cache,
}


def _takes_script(parser: _Parser) -> None:
    parser.add_argument(
        "script", metavar="SCRIPT", help=f"{_SCRIPT}; what stands after -- becomes its sys.argv"
    )
    parser.set_defaults(takes_arguments=True)


def _add_devices(parser: _Parser) -> None:
    parser.add_argument(
        "--devices",
        type=_positive,
        default=1,
        metavar="N",
        help="share each batch among N devices (the processor is split into N if need be)",
    )


def _add_machine(parser: _Parser, *, required: bool) -> None:
    """With it, `--devices` is None where it is not given: all of the machine's."""
    parser.add_argument(
        "--machine",
        metavar="NAME",
        required=required,
        help="compile for GPUs that need not be here: 8xh100, or a file of graphc devices "
        "--describe; by default each batch is shared among all of them",
    )
    parser.set_defaults(devices=None)


def _add_cache_dir(parser: _Parser) -> None:
    parser.add_argument(
        "--cache-dir",
        metavar="FOLDER",
        help="where compiled programs are kept, instead of the default folder",
    )


def _add_pipeline(parser: _Parser) -> None:
    parser.add_argument(
        "--pipeline", choices=PIPELINES, default="O2", help="the passes that run (default: O2)"
    )


def _add_fetches(parser: _Parser) -> None:
    parser.add_argument(
        "--fetch",
        action="append",
        default=[],
        metavar="NAME",
        help="a tensor, node or variable to fetch instead of the training step",
    )
    parser.add_argument(
        "--feed",
        action="append",
        default=[],
        type=_feed,
        metavar="NAME=SHAPE",
        help="the shape of a feed, such as x=32,784 (default: that of the job's batches)",
    )


def _add_tolerance(parser: _Parser, text: str) -> None:
    parser.add_argument(
        "--tolerance",
        type=_tolerance,
        metavar="X",
        help=f"{text} (default: by dtype; 1e-4 for float32)",
    )


def _add_progress(parser: _Parser) -> None:
    parser.add_argument("--no-progress", action="store_true", help="no progress bar")


def _add_json(parser: _Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs to read")


def _action(text: str) -> str:
    known = ("list", "clear", "size")
    if text not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is none of its actions; {nearest(text, known)}")
    return text


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _tolerance(text: str) -> float:
    value = _number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def _number(text: str) -> float:
    """-1 for what is no finite number."""
    try:
        value = float(text)
    except ValueError:
        return -1.0
    return value if math.isfinite(value) else -1.0


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _feed(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, shape = text.partition("=")
    sizes = [size.strip() for size in shape.strip("()").split(",") if size.strip()]
    if not name or not equals or not all(size.isdecimal() for size in sizes):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=SIZE,SIZE,...")
    return name, tuple(map(int, sizes))

"""The arguments of every command, with their help."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from functools import partial

from graphc._version import __version__
from graphc.cli.jobs_arguments import add_jobs_arguments, add_submit_arguments
from graphc.cli.launch_arguments import add_launch_arguments
from graphc.cli.model_arguments import add_compare_arguments, add_import_arguments
from graphc.cli.parser import Parser, add_command
from graphc.cli.scale_arguments import add_scale_arguments
from graphc.cli.serve_arguments import add_serve_arguments
from graphc.cli.shared_arguments import (
    SCRIPT,
    action,
    add_cache_dir,
    add_devices,
    add_fetch,
    add_fetches,
    add_formats,
    add_json,
    add_machine,
    add_pipeline,
    add_platforms,
    add_progress,
    add_size,
    add_tolerance,
    pair,
    positive,
    seconds,
    takes_script,
)
from graphc.config import PIPELINES
from graphc.errors import nearest


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command; `command` is its name, `arguments` those after `--`.

    Raises:
        SystemExit: code 2 after a one-line message if the arguments do not parse; 0 after help.
    """
    own, after = _split(arguments)
    parser = Parser(
        prog="graphc",
        description="Trains, compiles, exports and runs model graphs through JAX and XLA.",
        epilog="graphc COMMAND --help explains a command, with an example.",
    )
    parser.add_argument("--version", action="version", version=f"graphc {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    parsers = {name: add_command(commands, name, add) for name, add in _COMMANDS.items()}
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
        chosen.error("there is no script that takes the arguments after --")
    options.arguments = after
    return options


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    given = list(arguments)
    at = given.index("--") if "--" in given else len(given)
    return given[:at], given[at + 1 :]


# Each docstring is the help: its first paragraph states the purpose of the command, and the rest is
# an example.


def _train(parser: Parser) -> None:
    """Runs a script's training job, evaluates the model, and saves it.

    graphc train examples/digits_cnn.py --devices 4 --steps 400 --save digits.gcx
    """
    takes_script(parser)
    add_devices(parser)
    parser.add_argument("--steps", type=positive, metavar="N", help="instead of the job's own")
    parser.add_argument("--save", metavar="FILE", help="write the job's signatures there")
    parser.add_argument(
        "--checkpoint-dir",
        metavar="FOLDER",
        help="write checkpoints there: every ten minutes, at the end, and after Ctrl-C or SIGTERM",
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue from the latest checkpoint, if there is one"
    )
    parser.add_argument(
        "--validate-every", type=positive, metavar="N", help="validate after each N steps"
    )
    early = "stop after N validations without a lower value of their metric `loss`"
    parser.add_argument("--early-stop", type=positive, metavar="N", help=early)
    parser.add_argument(
        "--log-dir", metavar="FOLDER", help="write log.csv, log.jsonl and TensorBoard events there"
    )
    parser.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS", help="stop after this many seconds"
    )
    add_cache_dir(parser)
    add_progress(parser)
    add_json(parser)


def _compile(parser: Parser) -> None:
    """Compiles a script's training step ahead of time and reports the result.

    graphc compile examples/digits_cnn.py --fetch logits --feed x=32,8,8,1
    graphc compile examples/digits_cnn.py --machine 8xh100 --cache-dir shipped
    """
    takes_script(parser)
    add_fetches(parser)
    add_devices(parser)
    add_machine(parser, required=False)
    add_cache_dir(parser)
    add_json(parser)


def _run(parser: Parser) -> None:
    """Runs one signature of an artifact on arrays from files.

    graphc run digits.gcx --signature predict --input x=images.npy --output answers.npz
    """
    parser.add_argument("artifact", metavar="ARTIFACT", help="a file that gc.save wrote")
    parser.add_argument(
        "--signature", metavar="NAME", help="the entry point to run; optional if there is only one"
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        type=pair,
        metavar="NAME=FILE",
        help="an input, and the .npy file that contains it; may be repeated",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write the results there as .npz (types that NumPy lacks as float32 or int8) "
        "instead of printing them",
    )
    add_json(parser)


def _inspect(parser: Parser) -> None:
    """Shows the content of a script's graph, or of an artifact.

    graphc inspect examples/digits_cnn.py --cost
    graphc inspect examples/digits_cnn.py --passes --after eliminate-common
    graphc inspect examples/digits_cnn.py --html report.html
    graphc inspect digits.gcx
    """
    parser.add_argument("target", metavar="SCRIPT|ARTIFACT", help=f"{SCRIPT}; or an artifact")
    parser.set_defaults(takes_arguments=True)
    parser.add_argument("--graph", action="store_true", help="the graph as text")
    parser.add_argument(
        "--passes",
        action="store_true",
        help="the effect of each pass: nodes, time, and the cost of the program after it",
    )
    for which in ("before", "after"):
        parser.add_argument(
            f"--{which}",
            metavar="PASS",
            help=f"the program {which} a pass, as text; prune:2 for its second run",
        )
    add_pipeline(parser)
    add_devices(parser)
    parser.add_argument(
        "--cost", action="store_true", help="operations and bytes of each operator and node"
    )
    parser.add_argument("--stablehlo", action="store_true", help="the StableHLO text")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a page: the graph before and after each pass, cost, memory, devices",
    )
    add_fetches(parser)
    add_json(parser)


def _tune(parser: Parser) -> None:
    """Finds the fastest way to compile a script's training step here. Later runs then use it.

    graphc tune examples/digits_cnn.py --seconds 300
    graphc tune examples/digits_cnn.py --machine 8xh100

    For a machine that is not present it ranks by estimates, and stores nothing.
    """
    takes_script(parser)
    add_fetches(parser)
    add_devices(parser)
    add_machine(parser, required=False)
    add_pipeline(parser)
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=120.0,
        metavar="N",
        help="the time that tuning may take (default: 120)",
    )
    parser.add_argument(
        "--loop",
        type=positive,
        metavar="N",
        help="N steps in one call, as with Session.run_steps",
    )
    add_tolerance(parser, "how far results may differ, as a fraction of the largest value")
    add_progress(parser)
    add_json(parser)


def _profile(parser: Parser) -> None:
    """Shows where the time of a script's training step goes: by line, by node, and on the host.

    graphc profile examples/digits_cnn.py --html profile.html --trace trace.json
    """
    takes_script(parser)
    add_fetch(parser)
    add_devices(parser)
    parser.add_argument(
        "--steps", type=positive, default=20, metavar="N", help="steps to profile (default: 20)"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with the annotated source")
    parser.add_argument("--trace", metavar="FILE", help="write a trace for https://ui.perfetto.dev")
    add_cache_dir(parser)
    add_json(parser)


def _export(parser: Parser) -> None:
    """Writes a script's signatures to an artifact, with the initial weights or after training.

    graphc export examples/digits_cnn.py digits.gcx --platforms cpu,cuda --steps 400
    graphc export examples/digits_cnn.py digits.gcx --validate
    graphc export examples/digits_cnn.py digits.onnx --to onnx --steps 400 --validate
    graphc export resnet50.onnx resnet50 --to saved-model

    With --to, one signature is written in the format of another framework. SCRIPT may then be a
    model file too: .onnx, .pb, .mlir, .pt2, .tflite, or the folder of a SavedModel.
    """
    takes_script(parser)
    parser.add_argument("file", metavar="FILE", help="the artifact to write")
    add_formats(parser)
    add_devices(parser)
    add_platforms(parser)
    parser.add_argument("--steps", type=positive, metavar="N", help="train for so many steps first")
    parser.add_argument(
        "--validate",
        action="store_true",
        help="run the graph here and the file in a new process on the same inputs, and write "
        "errors and latencies to FILE with the ending .validation.json; exit code 1 if they differ",
    )
    add_tolerance(parser, "how large an error may be, as a fraction of the largest value")
    add_progress(parser)
    add_json(parser)


def _devices(parser: Parser) -> None:
    """Lists the devices of this machine by the names that gc.device accepts.

    graphc devices --json
    graphc devices --describe machine.toml
    """
    parser.add_argument(
        "--describe",
        metavar="FILE",
        help="write a description of the GPUs of this machine, for --machine FILE elsewhere",
    )
    add_json(parser)


def _plan(parser: Parser) -> None:
    """Shows whether a script's training step fits into a machine, and the largest batch that fits.

    graphc plan examples/digits_cnn.py --machine 8xh100 --largest-batch
    """
    takes_script(parser)
    add_fetches(parser)
    add_devices(parser)
    add_machine(parser, required=True)
    parser.add_argument(
        "--largest-batch",
        action="store_true",
        help="find the largest batch, and recompute values where this saves memory",
    )
    add_progress(parser)
    add_json(parser)


def _cache(parser: Parser) -> None:
    """Lists or removes the compiled programs that are stored for later processes.

    graphc cache list
    graphc cache clear --folder /data/me/compiled
    """
    parser.add_argument(
        "action",
        metavar="list|clear|size",
        type=partial(action, command="graphc cache", known=("list", "clear", "size")),
        help="list the programs and the time they save; remove all of them; show their total size",
    )
    parser.add_argument(
        "--folder", metavar="FOLDER", help="instead of the default: see CompileOptions(cache=...)"
    )
    add_json(parser)


def _opt(parser: Parser) -> None:
    """Reads a program as text, runs passes on it, and prints the resulting program.

    graphc opt program.txt --passes "simplify-algebra,fold-constants{limit=1024},prune" --verify
    graphc opt - --pipeline O2 --platform gpu --size batch=32 --print-after all
    graphc opt --list
    """
    parser.add_argument("file", nargs="?", metavar="FILE", help="the text; - for standard input")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--passes",
        metavar="PASS,PASS",
        help="passes in order, each with its options: a,b{option=1,other=true}",
    )
    which.add_argument("--pipeline", choices=PIPELINES, help="the passes of a pipeline instead")
    parser.add_argument(
        "--platform",
        choices=("any", "cpu", "gpu"),
        default="any",
        help="the device for which passes optimise (default: any)",
    )
    add_size(
        parser,
        "the value of a named size; may be repeated. --passes run after that; passes of a "
        "pipeline that need all sizes run only if all are given",
    )
    parser.add_argument(
        "--verify", action="store_true", help="check the program before and after each pass"
    )
    parser.add_argument(
        "--print-after",
        metavar="PASS|all",
        help="write the program after this pass, or after each that changed it, to standard error",
    )
    parser.add_argument(
        "--round-trip",
        action="store_true",
        help="print the result, parse that text, and fail if the parsed program differs",
    )
    parser.add_argument("--list", action="store_true", help="list all passes and their options")
    parser.set_defaults(whole_errors=True)


_COMMANDS: dict[str, Callable[[Parser], None]] = {
    "train": _train,
    "compile": _compile,
    "run": _run,
    "inspect": _inspect,
    "tune": _tune,
    "profile": _profile,
    "export": _export,
    "plan": _plan,
    "scale": add_scale_arguments,
    "devices": _devices,
    "cache": _cache,
    "opt": _opt,
    "compare": add_compare_arguments,
    "import": add_import_arguments,
    "serve": add_serve_arguments,
    "launch": add_launch_arguments,
    "submit": add_submit_arguments,
    "jobs": add_jobs_arguments,
}

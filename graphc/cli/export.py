"""`graphc export`: a script's signatures as an artifact."""

from __future__ import annotations

import argparse
import sys

from graphc.artifacts import save
from graphc.cli import export_to
from graphc.cli.report import print_json
from graphc.cli.script import load_job
from graphc.cli.targets import ask_for_devices, strategy_for
from graphc.cli.train import check_savable, saved_facts, saved_text
from graphc.cli.validate import failures, report_path, validate, validation_text
from graphc.errors import GraphcError
from graphc.runtime.session import Session
from graphc.train.fitting import fit


def run(options: argparse.Namespace) -> None:
    """Trains if requested, saves, and validates if requested.

    Raises:
        SystemExit: code 1, if the results of the file differ from those of the graph.
    """
    if options.tolerance is not None and not options.validate:
        raise GraphcError("--tolerance is for --validate", hint="add --validate")
    ask_for_devices(options.devices)
    if options.to is not None:
        export_to.run(options)
        return
    for name in ("signature", "size", "opset", "target"):
        if getattr(options, name):
            raise GraphcError(f"--{name} is for --to", hint="add --to FORMAT, or leave it out")
    job = load_job(options.script, options.arguments)
    check_savable(job, options.script, options.file)
    session = Session(job.graph, strategy=strategy_for(options.devices))
    if options.steps is not None:
        fit(session, job, steps=options.steps, progress=not options.no_progress)
    save(session, options.file, signatures=job.signatures, platforms=options.platforms)
    facts = saved_facts(job, options.file) | {"platforms": options.platforms}
    found = None
    if options.validate:
        found = validate(session, job, options.file, options.tolerance)
    if options.json:
        more = {} if found is None else {"validation": found}
        print_json(facts | {"steps": options.steps or 0} | more)
    else:
        print(f"saved {saved_text(facts)}; for {', '.join(options.platforms)}")
        print("\n".join([] if found is None else validation_text(found)), end="")
    if found is not None and failures(found):
        sys.stdout.flush()
        print(
            f"graphc export: {options.file} differs from the graph: {'; '.join(failures(found))} "
            f"(see {report_path(options.file)})",
            file=sys.stderr,
        )
        raise SystemExit(1)

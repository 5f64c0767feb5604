"""`graphc export`: a script's signatures as an artifact."""

from __future__ import annotations

import argparse

from graphc.artifacts import save
from graphc.cli.report import print_json
from graphc.cli.script import load_job
from graphc.cli.train import check_savable, saved_facts, saved_text
from graphc.runtime.session import Session
from graphc.train.loop import fit


def run(options: argparse.Namespace) -> None:
    """Trains if asked to, and saves."""
    job = load_job(options.script, options.arguments)
    check_savable(job, options.script, options.file)
    session = Session(job.graph)
    if options.steps is not None:
        fit(session, job, steps=options.steps, progress=not options.no_progress)
    save(session, options.file, signatures=job.signatures, platforms=options.platforms)
    facts = saved_facts(job, options.file) | {"platforms": options.platforms}
    if options.json:
        print_json(facts | {"steps": options.steps or 0})
    else:
        print(f"saved {saved_text(facts)}; for {', '.join(options.platforms)}")

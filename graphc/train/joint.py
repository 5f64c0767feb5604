"""What the processes of a cluster compare before `fit` runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from graphc.data.pipeline import Pipeline
from graphc.errors import ClusterError
from graphc.runtime.core.agreement import different, exchanged
from graphc.train.evaluation import Validation
from graphc.train.run import Run


def agree_on_run(run: Run, validation: Validation | None) -> None:
    """Checks that all processes of the session begin at one step and will run equally many.

    Raises:
        ClusterError: they do not.
    """
    if not run.session.spans_processes:
        return
    facts = facts_of(run, validation)
    given = exchanged("begins fit", json.dumps(facts))
    other = different(given)
    if other is not None:
        raise ClusterError(
            f"process 0 and process {other} do not run the same steps in fit",
            details=differences(json.loads(given[0]), json.loads(given[other]), other),
            hint="give each process equally many rows: rows.take(n).shard().batch(m, "
            "drop_remainder=True); and a folder for checkpoints that all can read",
        )


def facts_of(run: Run, validation: Validation | None) -> dict[str, Any]:
    """What must be equal. A number of batches is None if it is not known or does not matter."""
    facts = {"first step": run.step, "steps": run.steps, "epochs": run.epochs}
    facts["batches of an epoch"] = None if run.epochs is None else _count(run.job.batches)
    if validation is not None:
        count, most = _count(validation.batches), validation.steps
        limits = [each for each in (count, most) if each is not None]
        facts["batches of the validation"] = None if count is None else min(limits)
    return facts


def differences(first: Mapping[str, Any], second: Mapping[str, Any], other: int) -> list[str]:
    """The lines of an error."""
    return [
        f"{name}: {first.get(name)} in process 0, {second.get(name)} in process {other}"
        for name in {**first, **second}
        if first.get(name) != second.get(name)
    ]


def _count(batches: Any) -> int | None:
    if isinstance(batches, Pipeline):
        return batches.count
    return len(batches) if isinstance(batches, Sequence) else None

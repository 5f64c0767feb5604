"""Hyperparameters of a run, for TensorBoard's HParams view.

No list of metrics is written: TensorBoard finds the scalars of a run and of the runs in its folder.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphc.errors import AttributeValueError
from graphc.train.tensorboard.protos import protos

_STATUS = {True: "STATUS_SUCCESS", False: "STATUS_FAILURE"}
_LONGEST_TRIAL = 120  # characters
Hparam = str | bool | int | float


def checked_hparams(values: Mapping[str, Hparam]) -> dict[str, Hparam]:
    """The hyperparameters as numbers and texts of Python.

    Raises:
        AttributeValueError: a value is of another kind, or there is none.
    """
    found: dict[str, Hparam] = {}
    for name, value in values.items():
        plain: Any = value.item() if isinstance(value, np.generic) else value
        fits = isinstance(plain, str | bool | int | float) and isinstance(name, str)
        if not fits or (isinstance(plain, float) and not math.isfinite(plain)):
            raise AttributeValueError.here(
                f"SummaryWriter.hparams: {name!r} must be a finite number, a text or a bool, got "
                f"{value!r}",
                hint="str(value) logs another object by its text",
            )
        found[name] = plain
    if not found:
        raise AttributeValueError.here("SummaryWriter.hparams: no hyperparameters are given")
    return found


def session_start(values: Mapping[str, Hparam], trial: str | None) -> Any:
    """The summary with the values, at the start of a run."""
    named = ", ".join(f"{name}={value}" for name, value in sorted(values.items()))
    if trial is None and len(named) <= _LONGEST_TRIAL:
        trial = named  # by default TensorBoard shows a hash
    made = protos().hparams_summary.hparams_pb(dict(values), trial_id=trial)
    return made.value[0]


def session_end(success: bool) -> Any:
    """The summary at the end of a run."""
    modules = protos()
    status = modules.hparams_api.Status.Value(_STATUS[success])
    info = modules.hparams.SessionEndInfo(status=status, end_time_secs=time.time())
    data = modules.hparams.HParamsPluginData(session_end_info=info)
    metadata = modules.hparams_metadata
    return modules.summary.Summary.Value(
        tag=metadata.SESSION_END_INFO_TAG,
        metadata=metadata.create_summary_metadata(data),
        tensor=metadata.NULL_TENSOR,
    )

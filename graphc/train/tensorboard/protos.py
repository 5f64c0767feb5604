"""The optional packages that event files need, imported at first use.

Their protos have a package name of their own, so they can be in one process with TensorFlow.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from graphc.errors import MissingExtraError


class Protos(NamedTuple):
    """Modules of the package `tensorboard`, by what they define."""

    event: Any
    summary: Any
    tensor: Any
    types: Any
    graph: Any
    config: Any
    step_stats: Any
    hparams: Any
    hparams_api: Any
    hparams_summary: Any
    hparams_metadata: Any
    image: Any
    audio: Any
    pr_curve: Any


def protos() -> Protos:
    """The modules with the messages of event files.

    Raises:
        MissingExtraError: the package `tensorboard` is not installed.
    """
    try:
        return _imported()
    except ImportError as error:
        raise MissingExtraError.here(
            f"event files need the package tensorboard, which cannot be imported: {error}",
            hint="pip install 'graphc[tensorboard]'",
        ) from error


@cache
def _imported() -> Protos:
    from tensorboard.compat.proto import (
        config_pb2,
        event_pb2,
        graph_pb2,
        step_stats_pb2,
        summary_pb2,
        tensor_pb2,
        types_pb2,
    )
    from tensorboard.plugins.audio import plugin_data_pb2 as audio_pb2
    from tensorboard.plugins.hparams import api_pb2, metadata, summary_v2
    from tensorboard.plugins.hparams import plugin_data_pb2 as hparams_pb2
    from tensorboard.plugins.image import plugin_data_pb2 as image_pb2
    from tensorboard.plugins.pr_curve import plugin_data_pb2 as pr_curve_pb2

    return Protos(
        event=event_pb2,
        summary=summary_pb2,
        tensor=tensor_pb2,
        types=types_pb2,
        graph=graph_pb2,
        config=config_pb2,
        step_stats=step_stats_pb2,
        hparams=hparams_pb2,
        hparams_api=api_pb2,
        hparams_summary=summary_v2,
        hparams_metadata=metadata,
        image=image_pb2,
        audio=audio_pb2,
        pr_curve=pr_curve_pb2,
    )

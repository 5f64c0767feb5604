"""The optional packages that event files need, imported at first use.

Their protos have a package name of their own, so they can be in one process with TensorFlow.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import SimpleNamespace

from graphc.errors import MissingExtraError

# What the modules of the package `tensorboard` define -> their names.
_MODULES = {
    "event": "compat.proto.event_pb2",
    "summary": "compat.proto.summary_pb2",
    "tensor": "compat.proto.tensor_pb2",
    "types": "compat.proto.types_pb2",
    "graph": "compat.proto.graph_pb2",
    "config": "compat.proto.config_pb2",
    "step_stats": "compat.proto.step_stats_pb2",
    "hparams": "plugins.hparams.plugin_data_pb2",
    "hparams_api": "plugins.hparams.api_pb2",
    "hparams_summary": "plugins.hparams.summary_v2",
    "hparams_metadata": "plugins.hparams.metadata",
    "image": "plugins.image.plugin_data_pb2",
    "audio": "plugins.audio.plugin_data_pb2",
    "pr_curve": "plugins.pr_curve.plugin_data_pb2",
}


def protos() -> SimpleNamespace:
    """The modules with the messages of event files, as attributes.

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
def _imported() -> SimpleNamespace:
    modules = {name: import_module(f"tensorboard.{path}") for name, path in _MODULES.items()}
    return SimpleNamespace(**modules)

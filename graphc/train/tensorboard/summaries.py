"""Events with one summary: the tensor of a tag, and the plugin of TensorBoard that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.train.tensorboard.protos import protos
from graphc.train.tensorboard.values import Array


def event(wall_time: float, step: int, value: Any) -> bytes:
    """A serialised event with one summary."""
    modules = protos()
    summary = modules.summary.Summary(value=[value])
    made: bytes = modules.event.Event(
        wall_time=wall_time, step=step, summary=summary
    ).SerializeToString()
    return made


def summary(tag: str, tensor: Any, plugin: str, content: bytes = b"", description: str = "") -> Any:
    """A summary that a plugin of TensorBoard shows.

    Args:
        tensor: a TensorProto.
        plugin: the name of the plugin.
        content: the plugin's own message about the tag.
        description: Markdown.
    """
    message = protos().summary
    plugin_data = message.SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    metadata = message.SummaryMetadata(plugin_data=plugin_data, summary_description=description)
    return message.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)


def numbers(array: Array) -> Any:
    """A float32 or float64 array as a TensorProto."""
    name = "DT_DOUBLE" if array.dtype == np.float64 else "DT_FLOAT"
    content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return _tensor(name, array.shape, tensor_content=content)


def strings(items: Sequence[bytes], shape: Sequence[int]) -> Any:
    """Byte strings as a TensorProto."""
    return _tensor("DT_STRING", shape, string_val=items)


def _tensor(dtype: str, shape: Sequence[int], **content: Any) -> Any:
    modules = protos()
    made = modules.tensor.TensorProto(dtype=modules.types.DataType.Value(dtype), **content)
    made.tensor_shape.SetInParent()
    for size in shape:
        made.tensor_shape.dim.add(size=size)
    return made


def scalar(tag: str, number: float, description: str) -> Any:
    """A point of a curve. TensorBoard stores float32."""
    with np.errstate(over="ignore"):  # beyond float32 the curve shows infinity
        value = np.float32(number)
    return summary(tag, numbers(np.asarray(value)), "scalars", description=description)


def text(tag: str, texts: Array, description: str) -> Any:
    """Markdown: one text, a list of them, or the cells of a table."""
    items = [str(item).encode() for item in texts.reshape(-1)]
    return summary(tag, strings(items, texts.shape), "text", description=description)

"""Writes arrays as TensorFlow stores variables: `PREFIX.index` and `PREFIX.data-00000-of-00001`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from graphc.data.records.framing import import_crc32c
from graphc.exporters.core.files import write
from graphc.ir.dtypes import Array
from graphc.train.tensorflow.schema import messages
from graphc.train.tensorflow.sstable import masked, table

_PIECE = 4 << 20  # bytes that are written at once


def write_bundle(
    prefix: Path, numbers: Mapping[str, int], array_of: Callable[[str], Array]
) -> None:
    """Writes arrays under their keys. One of them is in memory at a time.

    Args:
        numbers: key -> the number of its dtype in TensorFlow.
        array_of: returns the array of a key.

    Raises:
        ModelExportError: a file cannot be written.
        MissingExtraError: protobuf or google-crc32c is not installed.
    """
    proto = messages()
    checksum = import_crc32c("writing variables of TensorFlow", "tensorflow")
    header = proto.BundleHeaderProto(num_shards=1)
    header.version.producer = 1
    content = {b"": header.SerializeToString()}

    def pieces() -> Iterator[memoryview]:
        from google_crc32c import extend

        at = 0
        for key in sorted(numbers, key=str.encode):
            array = np.asarray(array_of(key), order="C")  # also of rank 0
            entry = proto.BundleEntryProto(dtype=numbers[key], offset=at, size=array.nbytes)
            entry.shape.SetInParent()
            for size in array.shape:
                entry.shape.dim.add(size=size)
            crc, data = 0, array.reshape(-1).view(np.uint8).data
            for start in range(0, len(data), _PIECE):
                piece = data[start : start + _PIECE]
                crc = extend(crc, bytes(piece))
                yield piece
            entry.crc32c = masked(crc)
            content[key.encode()] = entry.SerializeToString()
            at += array.nbytes

    write(prefix.with_name(f"{prefix.name}.data-00000-of-00001"), pieces())
    write(prefix.with_name(f"{prefix.name}.index"), table(content, checksum))

"""Values through a pipe: arrays travel beside the pickle, not in it."""

from __future__ import annotations

import pickle
import struct
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

_LARGE = 1 << 12  # bytes: smaller buffers cost less inside the pickle


def send(connection: Connection, value: Any) -> None:
    """Sends a value.

    Raises:
        Exception: of pickling it.
        OSError: the other end is closed.
    """
    buffers: list[pickle.PickleBuffer] = []

    def beside(buffer: pickle.PickleBuffer) -> bool:
        """False: it travels beside the pickle."""
        if buffer.raw().nbytes < _LARGE:
            return True
        buffers.append(buffer)
        return False

    body = pickle.dumps(value, protocol=5, buffer_callback=beside)
    raw = [buffer.raw() for buffer in buffers]
    head = struct.pack(f"<I{len(raw)}Q", len(raw), *(each.nbytes for each in raw))
    connection.send_bytes(head + body)
    for each in raw:
        connection.send_bytes(each)


def receive(connection: Connection) -> Any:
    """The value that the other end sent.

    Raises:
        EOFError, OSError: the other end is closed.
        Exception: of unpickling it.
    """
    message = connection.recv_bytes()
    (count,) = struct.unpack_from("<I", message)
    sizes = struct.unpack_from(f"<{count}Q", message, 4)
    buffers = []
    for size in sizes:
        memory = np.empty(size, np.uint8)
        connection.recv_bytes_into(memory.data)
        buffers.append(memory)
    return pickle.loads(memoryview(message)[4 + 8 * count :], buffers=buffers)

"""A proxy whose connections a test can end, as a network does."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class Proxy:
    """Passes the bytes of connections to a server at a port, whatever their protocol is.

    Attributes:
        port: where it listens.
        connections: how many there have been.
    """

    def __init__(self, port: int) -> None:
        self.connections = 0
        self._to = port
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]

    def cut(self) -> None:
        """Ends all connections. Bytes that are on their way are lost."""
        with self._lock:
            for each in self._open:
                _shut(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                with self._lock:
                    self.connections += 1
                    self._open += [client, server]
                for pair in ((client, server), (server, client)):
                    self._start(_pass, *pair)

    def _start(self, function: object, *arguments: object) -> None:
        thread = threading.Thread(target=function, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        _shut(self._socket)
        self._threads[0].join()
        self.cut()
        for each in self._threads:
            each.join()
        for each in (self._socket, *self._open):
            each.close()


def _pass(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    _shut(source)
    _shut(target)


def _shut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)

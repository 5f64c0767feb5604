"""A server, as a process of its own, whose requests together may have 32 MiB.

It writes its port, and ends when its input ends. Messages wait for each other a tenth of a second
only, so that many that never end are refused soon.
"""

import sys

from graphc.serving import Server, ServerConfig
from graphc.serving.endpoints import request_bytes
from tests.serving.fakes import manager

MESSAGE = 8 << 20

if __name__ == "__main__":
    request_bytes._PATIENCE = 0.1  # type: ignore[misc]
    config = ServerConfig(
        (), port=0, rest_port=None, max_body_bytes=MESSAGE, max_request_bytes=4 * MESSAGE
    )
    with Server(config, manager=manager()) as server:
        print(server.port, flush=True)
        sys.stdin.read()

"""A server, as a process of its own, whose requests together may have 32 MiB.

It writes its port, and ends when its input ends.
"""

import sys

from graphc.serving import Server, ServerConfig
from tests.serving.fakes import manager

MESSAGE = 8 << 20

if __name__ == "__main__":
    config = ServerConfig(
        (), port=0, rest_port=None, max_body_bytes=MESSAGE, max_request_bytes=4 * MESSAGE
    )
    with Server(config, manager=manager()) as server:
        print(server.port, flush=True)
        sys.stdin.read()

"""`graphc jobs serve`: the service of a queue."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from graphc.cluster.jobs.capacity import Capacity
from graphc.cluster.jobs.clients import default_folder
from graphc.cluster.jobs.quantities import bytes_of, shown_bytes
from graphc.cluster.jobs.roots import Roots
from graphc.cluster.jobs.server import JobsServer, own_token
from graphc.cluster.jobs.service import JobService, queue_folder
from graphc.cluster.jobs.users import Users
from graphc.errors import AttributeValueError

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(options: argparse.Namespace) -> None:
    """Serves until SIGTERM or Ctrl-C. Jobs go on."""
    _check(options)
    folder = queue_folder(Path(options.queue) if options.queue else default_folder())
    roots = Roots(options.root)
    token = ""
    if options.users is None:
        users, token = own_token(folder)
    else:
        users = Users.read(Path(options.users))
        if Path(options.users).stat().st_mode & 0o077:
            print(f"other users of the machine can read the tokens: chmod 600 {options.users}",
                  file=sys.stderr)  # fmt: skip
    service = JobService(folder, roots, capacity_of(options), users.quotas)
    tls = (options.tls_certificate, options.tls_key) if options.tls_certificate else None
    try:
        server = JobsServer(service, users, options.host, options.port, tls)
    except BaseException:
        service.close()
        raise
    host = f"[{options.host}]" if ":" in options.host else options.host

    def started() -> None:
        total = service.capacity.total
        print(f"queue {folder}: {total.processes} processes, {total.devices} devices, "
              f"{shown_bytes(total.memory)} of memory")  # fmt: skip
        url = f"http{'s' if tls else ''}://{host}:{server.port}/"
        print(f"page: {url}{f'#token={token}' if token else ''}", flush=True)
        if tls is None and options.host not in _LOOPBACK:
            print("tokens are not encrypted on their way: give --tls-certificate and --tls-key",
                  file=sys.stderr)  # fmt: skip

    server.run(started)
    print("the service has ended; its jobs go on, and the next service finds them")


def _check(options: argparse.Namespace) -> None:
    if not options.root:
        raise AttributeValueError(
            "from which folders may jobs run scripts?",
            hint="graphc jobs serve --root FOLDER",
        )
    if options.server:
        raise AttributeValueError("--server is for clients of a service", hint="leave it out")
    if bool(options.tls_certificate) != bool(options.tls_key):
        raise AttributeValueError("--tls-certificate and --tls-key belong together")
    if not 0 <= options.port < 65536:
        raise AttributeValueError("--port must be from 0 to 65535; 0 selects a free one")


def capacity_of(options: argparse.Namespace) -> Capacity:
    """What jobs may take together.

    Raises:
        AttributeValueError: an option is not valid.
    """
    gpus = tuple(name.strip() for name in (options.gpus or "").split(",") if name.strip())
    if len(set(gpus)) < len(gpus):
        raise AttributeValueError(f"--gpus names a GPU twice: {options.gpus}")
    if gpus and options.max_devices and options.max_devices > len(gpus):
        raise AttributeValueError(f"--max-devices is more than the {len(gpus)} GPUs of --gpus")
    memory = None
    if options.max_memory is not None:
        try:
            memory = bytes_of(options.max_memory)
        except ValueError as error:
            raise AttributeValueError(f"--max-memory must be {error}") from None
    return Capacity.of(options.max_processes, options.max_devices, memory, gpus)

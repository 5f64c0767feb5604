"""`join`: makes this process a part of its cluster."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Mapping, Sequence
from threading import Event, Lock, Thread
from typing import Any

import jax

from graphc.cluster.detection import LAUNCHER, detected
from graphc.cluster.spec import ClusterSpec, Member
from graphc.errors import ClusterError
from graphc.ir.calls import explained

_ALONE = ClusterSpec({"worker": [None]}).member("worker", 0)
_TURN = 1.0  # seconds between two looks at the launcher
_LAST = 3600  # seconds that a process waits at its end, while others export or evaluate alone
_LOCK = Lock()
_joined: Member | None = None


@explained
def join(
    spec: ClusterSpec | Mapping[str, Sequence[str | None]] | str | os.PathLike[str] | None = None,
    job: str | None = None,
    index: int | None = None,
    *,
    timeout: float = 300.0,
    heartbeat: float = 20.0,
) -> Member:
    """Connects this process with the others of its cluster. Call it before anything uses JAX's
    devices.

    Afterwards `jax.devices()` lists the devices of all processes, and
    `gc.devices.DataParallel(jax.devices())` trains on all of them: each process feeds its share of
    each batch. The same script runs in every process.

    Without arguments, the cluster is found in the environment: `graphc launch`, TF_CONFIG, Open
    MPI, Slurm, or an indexed Kubernetes job with GRAPHC_SERVICE and GRAPHC_WORKERS. Outside of
    these, the process is a cluster of its own, so that the script also runs by itself. A further
    call returns the same. At its end, a process waits up to an hour for the others.

    Args:
        spec: the processes, as for `ClusterSpec.of`.
        job, index: which of them this process is.
        timeout: how many seconds to wait for the others.
        heartbeat: after how many seconds without a sign of life a process counts as dead. The
            others then end.

    Raises:
        ClusterError: the specification is not valid, the others do not come in time, JAX's devices
            are already in use, or this process has joined another cluster.

    Examples:
        >>> member = gc.cluster.join()
        >>> member.rank, member.size, member.is_chief
        (0, 1, True)
    """
    global _joined
    with _LOCK:
        member = _member(spec, job, index)
        if _joined is not None and _joined != member:
            raise ClusterError.here(
                f"this process has joined as {_joined}, and cannot join as {member}",
                hint="call gc.cluster.join once",
            )
        if _joined is None:
            _end_with_launcher(os.environ.get(LAUNCHER))
        if _joined is None and member.rank is not None and member.size > 1:
            _connect(member, timeout, heartbeat)
        _joined = member
        return member


def _member(spec: Any, job: str | None, index: int | None) -> Member:
    if spec is None:
        if job is not None or index is not None:
            raise ClusterError.here(
                "join: a job and an index need the specification of the cluster",
                hint='gc.cluster.join("cluster.json", "worker", 1)',
            )
        return detected(os.environ) or _ALONE
    if job is None or index is None:
        raise ClusterError.here(
            "join: which process of the cluster is this one?",
            hint='gc.cluster.join("cluster.json", "worker", 1)',
        )
    return ClusterSpec.of(spec).member(job, index)


def _end_with_launcher(launcher: str | None) -> None:
    """Ends this process when its launcher is gone, which could no longer end it."""
    if launcher is None or not launcher.isdecimal() or os.getppid() != int(launcher):
        return  # it was not started by the launcher itself

    def watch() -> None:
        while os.getppid() == int(launcher):
            time.sleep(_TURN)
        os._exit(1)

    Thread(target=watch, daemon=True, name="graphc-launcher").start()


def _end_at_once_after_an_error() -> None:
    """Lets a process that ends with an exception end at once. Otherwise JAX would wait at the end
    for the other processes, which may be waiting for this one in the middle of a step."""
    before, failed = sys.excepthook, Event()

    def note(*error: Any) -> None:
        before(*error)
        failed.set()

    def end() -> None:
        if failed.is_set():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    sys.excepthook = note
    atexit.register(end)  # runs before JAX's, which was registered earlier


def _connect(member: Member, timeout: float, heartbeat: float) -> None:
    address = member.spec.coordinator
    if address is None:
        raise ClusterError(
            "the address of rank 0 is not known", hint="give it in the specification of the cluster"
        )
    jax.config.update("jax_enable_preemption_service", False)  # it would ignore SIGTERM
    try:
        jax.distributed.initialize(
            address,
            member.size,
            member.rank,
            initialization_timeout=max(1, round(timeout)),
            heartbeat_timeout_seconds=max(1, round(heartbeat)),
            shutdown_timeout_seconds=_LAST,
            cluster_detection_method="deactivate",
        )
        _end_at_once_after_an_error()
    except RuntimeError as error:  # JaxRuntimeError is one
        late = "before any JAX" in str(error) or "must be called before" in str(error)
        raise ClusterError.here(
            f"{member!r} cannot join the cluster at {address}: {str(error).splitlines()[0]}",
            hint="call gc.cluster.join at the top of the script, before anything uses JAX's devices"
            if late
            else f"all {member.size} processes must run, and reach that address; each must have "
            "its own index",
        ) from None

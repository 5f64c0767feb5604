"""Loads a version: opens the artifact, compiles it, and runs it once before others can use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial

import jax

from graphc.artifacts.limits import Limits
from graphc.artifacts.loading import Loading, open_model
from graphc.artifacts.sharing import Sharing
from graphc.errors import ArtifactError
from graphc.serving.batching.batcher import Batcher, BatchReport
from graphc.serving.batching.paddable import paddable
from graphc.serving.config import BatchingConfig
from graphc.serving.models.pacing import Pace
from graphc.serving.models.servable import LOG, Servable
from graphc.serving.models.versions import Found
from graphc.serving.models.warmup import warm_up
from graphc.web.failures import Failure

Observe = Callable[[str, str, BatchReport], None]
"""Takes the model, the signature, and the report of a batch."""


@dataclass(frozen=True)
class Loader:
    """How versions are loaded.

    Attributes:
        executor: where requests run that are not batched.
        devices: one replica is loaded on each; none means JAX's default device.
        sharing: what all versions share, with the pace at which files are read.
        pace: makes the loading thread rest while requests arrive.
        batching: how requests are joined; None runs each request alone.
        observe: called after each batch with the model, the signature and the report.
        warm_up: whether a version runs before it is available. Otherwise, programs are compiled
            by the first requests, and damage may be found by them.
        trust_native, limits: see `gc.load`.
    """

    executor: Executor
    devices: Sequence[jax.Device] = ()
    sharing: Sharing = field(default_factory=Sharing)
    pace: Pace = field(default_factory=Pace)
    batching: BatchingConfig | None = None
    observe: Observe = lambda model, signature, report: None
    warm_up: bool = True
    trust_native: bool = False
    limits: Limits | None = None

    def load(self, name: str, found: Found) -> Servable:
        """The version, ready for requests.

        Raises:
            ArtifactError: the file is not an artifact, damaged, incomplete, or outside base_path.
            DataError: recorded requests cannot be read.
            Failure: a recorded request failed, a run did, or a size with buckets cannot be padded.
        """
        if found.problem:
            raise ArtifactError(found.problem)
        with self.pace.loading():
            return self._load(name, found)

    def _load(self, name: str, found: Found) -> Servable:
        replicas = [
            open_model(
                found.path,
                Loading(device, trust_native=self.trust_native, limits=self.limits),
                self.sharing,
            )
            for device in self.devices or (None,)
        ]
        servable = Servable(name, found.version, replicas, self.executor)
        try:
            if self.batching is not None:
                self._batch(servable, self.batching)
            else:
                _note_buckets(servable)
            if self.warm_up:
                warm_up(servable, found.folder)
        except BaseException:
            servable.close()
            raise
        return servable

    def _batch(self, servable: Servable, batching: BatchingConfig) -> None:
        for name, point in servable.signatures.items():
            if servable.refusal(name) is not None:
                continue
            try:
                batcher = Batcher(
                    partial(servable.run_numbers, name),
                    paddable(point),
                    batching,
                    partial(self.observe, servable.name, name),
                    buckets={**point.buckets, **batching.buckets},
                    finish=partial(servable.strings, name),
                )
            except Failure as failure:
                what = f"signature {name!r}: {failure.message}"
                raise Failure(failure.code, what) from failure
            servable.batch(name, batcher)


def _note_buckets(servable: Servable) -> None:
    """Says in the log which buckets have no effect."""
    names = [name for name, point in servable.signatures.items() if point.buckets]
    if names:
        LOG.warning(
            "%s version %d: the buckets of %s need batching (--enable_batching): without it each "
            "request runs at its true size",
            servable.name, servable.version, ", ".join(map(repr, names)),
        )  # fmt: skip

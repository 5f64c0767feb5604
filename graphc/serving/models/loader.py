"""Loads a version: opens the artifact, compiles it, and runs it once before others can use it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import jax

from graphc.artifacts.limits import Limits
from graphc.artifacts.loading import open_model
from graphc.artifacts.sharing import Sharing
from graphc.errors import ArtifactError
from graphc.serving.failures import Failure
from graphc.serving.models.servable import LOG, Servable
from graphc.serving.models.versions import Found
from graphc.serving.models.warmup import Request, recorded, zeros


@dataclass(frozen=True)
class Loader:
    """How versions are loaded.

    Attributes:
        executor: where requests run that are not batched.
        devices: one replica is loaded on each; none means JAX's default device.
        sharing: what all versions share.
        warm_up: whether a version runs before it is available. Otherwise, programs are compiled
            by the first requests, and damage may be found by them.
        trust_native, limits: see `gc.load`.
    """

    executor: Executor
    devices: Sequence[jax.Device] = ()
    sharing: Sharing = field(default_factory=Sharing)
    warm_up: bool = True
    trust_native: bool = False
    limits: Limits | None = None

    def load(self, name: str, found: Found) -> Servable:
        """The version, ready for requests.

        Raises:
            ArtifactError: the file is not an artifact, damaged, incomplete, or outside base_path.
            DataError: recorded requests cannot be read.
            Failure: a recorded request failed, or a run did.
        """
        if found.problem:
            raise ArtifactError(found.problem)
        replicas = [
            open_model(
                found.path,
                device,
                trust_native=self.trust_native,
                limits=self.limits,
                sharing=self.sharing,
            )
            for device in self.devices or (None,)
        ]
        servable = Servable(name, found.version, replicas, self.executor)
        if self.warm_up:
            self._warm_up(servable, found)
        return servable

    def _warm_up(self, servable: Servable, found: Found) -> None:
        for request in recorded(found.folder):
            self._run(servable, request)
        for name, point in servable.signatures.items():
            if servable.refusal(name) is None:
                for request in zeros(point, servable.sizes(name)):
                    self._run(servable, request)

    def _run(self, servable: Servable, request: Request) -> None:
        """Runs a request on each replica. Zeros of a size that the program rejects are not an
        error: open sizes may have conditions that nothing states."""
        name = request.signature or servable.default
        try:
            servable.run_everywhere(name, request.inputs)
        except Failure as failure:
            if request.recorded or failure.code != "INVALID_ARGUMENT":
                raise
            LOG.info("%s: no warm-up of %r: %s", servable.name, name, failure.message)

"""`Manager`: keeps the right versions of all models available, without a gap."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import jax

from graphc.artifacts.limits import Limits
from graphc.artifacts.sharing import Sharing
from graphc.config import DEFAULT, CompileOptions, Default
from graphc.errors import GraphcError
from graphc.serving.config import BatchingConfig, ModelConfig, SessionConfig, check_names
from graphc.serving.models.error_texts import text_of
from graphc.serving.models.loader import Loader, Observe
from graphc.serving.models.pacing import Pace
from graphc.serving.models.servable import LOG, Servable
from graphc.serving.models.served import Overview, Served
from graphc.serving.models.sessions import Sessions
from graphc.serving.models.updater import Updater
from graphc.serving.models.versions import VersionStatus
from graphc.store.folder import ExecutableCache, open_cache
from graphc.web.failures import Failure

_MOST_STEPS = 256  # compiled sizes of each signature: clients must not fill the memory


def _sharing(cache: ExecutableCache | Default | None, pace: Pace) -> Sharing:
    """What the models share; `cache` is the argument of `Manager`."""
    opened = open_cache(CompileOptions()) if isinstance(cache, Default) else cache
    return Sharing(cache=opened, most_steps=_MOST_STEPS, pace=pace)


class Manager:
    """The models of a server. Thread-safe.

    A version is loaded, compiled and warmed up before it is available; then the version before it
    takes no further requests, finishes those that it has, and is unloaded. A version that cannot be
    loaded displaces nothing: its state says why, and it is tried again when its file changes.
    Versions are loaded at the same time, and a slow one does not delay others. With
    the policy Latest, the next older version is served instead. If the folder of a model
    disappears, what is loaded stays.

    Args:
        configs: the models.
        batching: how requests are joined to batches; None runs each request alone.
        observe: called after each batch with the model, the signature and the report.
        sessions: the limits of sessions.
        poll_seconds: the time between two searches for new versions; 0 searches only in `start`
            and `reload`.
        threads, warm_up, load_threads, unload_threads: see `ServerConfig`.
        load_retries, load_retry_seconds: see `ServerConfig`.
        devices: each version is loaded once on each; by default on JAX's default device.
        cache: where compiled programs are stored for later processes. The default is the user's
            cache folder; None stores none.
        trust_native, limits: see `gc.load`.

    Raises:
        AttributeValueError: two models have one name.

    Examples:
        >>> import os, tempfile
        >>> from graphc.serving.config import ModelConfig
        >>> from graphc.serving.models.manager import Manager
        >>> x = gc.placeholder(("batch",), name="x")
        >>> signatures = {"predict": gc.Signature({"x": x}, {"y": 2.0 * x})}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     os.mkdir(f"{folder}/1")
        ...     gc.save(gc.Session(graph), f"{folder}/1/model.gcx", signatures=signatures,
        ...             platforms=["cpu"])
        ...     manager = Manager([ModelConfig("double", folder)], poll_seconds=0)
        ...     manager.start()
        ...     with manager.use("double") as servable:
        ...         y = servable.run("predict", {"x": np.float32([1, 2])})["y"]
        ...     finished = manager.close()
        >>> y
        array([2., 4.], dtype=float32)
    """

    def __init__(
        self,
        configs: Sequence[ModelConfig],
        *,
        batching: BatchingConfig | None = None,
        observe: Observe | None = None,
        sessions: SessionConfig | None = None,
        poll_seconds: float = 1.0,
        threads: int = 4,
        warm_up: bool = True,
        load_threads: int = 4,
        unload_threads: int = 4,
        load_retries: int = 5,
        load_retry_seconds: float = 60.0,
        devices: Sequence[jax.Device] = (),
        cache: ExecutableCache | Default | None = DEFAULT,
        trust_native: bool = False,
        limits: Limits | None = None,
    ) -> None:
        check_names(tuple(configs))
        self._models = {config.name: Served(config) for config in configs}
        self.sessions = Sessions(sessions)
        self._poll_seconds = poll_seconds
        self._pace = Pace()
        self.sharing = _sharing(cache, self._pace)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="graphc-request")
        observe = observe or (lambda model, signature, report: None)
        shared = (self._pool, tuple(devices), self.sharing, self._pace)
        self._loader = Loader(*shared, batching, observe, warm_up, trust_native, limits)
        self._lock = threading.Lock()  # held for moments: requests take it
        self._searching = threading.Lock()  # held while files are listed
        self._reloading = threading.Lock()  # held until the versions of a configuration are loaded
        self._wake = threading.Event()
        self._updater = Updater(
            self._loader,
            self._lock,
            load_threads=load_threads,
            unload_threads=unload_threads,
            retries=load_retries,
            retry_seconds=load_retry_seconds,
            wake=self._wake.set,
        )
        self._closed = False
        self._thread: threading.Thread | None = None

    # -- requests -------------------------------------------------------------------------------

    @contextmanager
    def use(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> Iterator[Servable]:
        """The servable for a request. It is not unloaded while the context is active.

        Args:
            version, label: at most one. Without both, the model's traffic percentages decide, or
                the largest version is used.

        Raises:
            Failure: NOT_FOUND: no such model, or the version is not available. INVALID_ARGUMENT: no
                such label.
        """
        self._pace.requested()
        with self._lock:
            served = self._models.get(name)
            if served is None:
                asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
                raise Failure("NOT_FOUND", f"Servable not found for request: {asked}")
            servable = served.enter(version, label)
        try:
            yield servable
        finally:
            servable.uses.leave()

    def names(self) -> list[str]:
        """The names of the models."""
        with self._lock:
            return list(self._models)

    def config(self, name: str) -> ModelConfig:
        """The configuration of a model.

        Raises:
            Failure: NOT_FOUND: no such model.
        """
        with self._lock:
            return self._served(name).config

    def labels(self, name: str) -> dict[str, int]:
        """The labels of a model that are assigned: label -> version.

        Raises:
            Failure: NOT_FOUND: no such model.
        """
        with self._lock:
            return dict(self._served(name).labels)

    def status(self, name: str, version: int | None = None) -> list[VersionStatus]:
        """The states of the versions of a model, or of one version; the largest first.

        Raises:
            Failure: NOT_FOUND: no such model, or no such version.
        """
        with self._lock:
            versions = self._served(name).versions
            found = [versions[n].status for n in sorted(versions, reverse=True)]
        if version is None:
            return found
        found = [status for status in found if status.version == version]
        if not found:
            raise Failure("NOT_FOUND", f"Could not find version {version} of model {name}")
        return found

    def overview(self, name: str) -> Overview:
        """How requests reach the versions of a model.

        Raises:
            Failure: NOT_FOUND: no such model.
        """
        with self._lock:
            return self._served(name).overview()

    def is_ready(self) -> bool:
        """Whether each model has an available version, or none that can be loaded. At least one
        model must have an available version."""
        with self._lock:
            models = self._models.values()
            settled = all(served.available or served.has_failed for served in models)
            return settled and (not models or any(served.available for served in models))

    def _served(self, name: str) -> Served:
        served = self._models.get(name)
        if served is None:
            raise Failure("NOT_FOUND", f"Could not find any versions of model {name}")
        return served

    # -- the life of the manager ----------------------------------------------------------------

    def start(self) -> None:
        """Begins to search for versions, and returns when those that there are have been loaded or
        have failed."""
        self._thread = threading.Thread(
            target=self._search_forever, name="graphc-poll", daemon=True
        )
        self._thread.start()
        self.poll()

    def poll(self) -> None:
        """Searches once for new versions. Returns when they are loaded or have failed."""
        self._updater.wait(self.search())

    def search(self) -> list[Served]:
        """Searches once for new versions, which are loaded in the background.

        Returns:
            all models.
        """
        with self._searching:
            with self._lock:
                models = list(self._models.values())
            for served in models:
                self._updater.search(served)
        return models

    def reload(self, configs: Sequence[ModelConfig], wait: bool = True) -> None:
        """Replaces the configuration of all models. Models that it does not name are unloaded.

        Args:
            wait: returns when all versions have been loaded or have failed. Otherwise they are
                loaded in the background.

        Raises:
            Failure: INVALID_ARGUMENT: the configuration is not valid; nothing changes.
                FAILED_PRECONDITION, if it waits: a label names a version that is not available; the
                label is not changed. Other codes, if it waits: a version could not be loaded.
        """
        try:
            check_names(tuple(configs))
        except GraphcError as error:
            raise Failure("INVALID_ARGUMENT", text_of(error)) from error
        if not wait:
            self._configure(configs)
            return
        with self._reloading:
            models = self._configure(configs)
            self._updater.wait(models)
            with self._lock:
                problem = next(filter(None, (served.problem() for served in models)), None)
        if problem is not None:
            raise problem

    def _configure(self, configs: Sequence[ModelConfig]) -> list[Served]:
        """The models with a new configuration, whose versions are being loaded."""
        with self._searching:
            with self._lock:
                before, self._models = self._models, {}
                for config in configs:
                    served = before.pop(config.name, None) or Served(config)
                    served.config = config
                    self._models[config.name] = served
                models = list(self._models.values())
                for served in before.values():
                    served.removed = True
                    self._updater.unload(served, served.available)
            for served in models:
                self._updater.search(served)
        return models

    def retry(self, name: str) -> None:
        """Searches for new versions at once, in the background. Versions of this model that could
        not be loaded are tried again.

        Raises:
            Failure: NOT_FOUND: no such model.
        """
        with self._lock:
            served = self._served(name)
            served.retry()
        with self._searching:
            self._updater.search(served)

    def close(self, timeout: float | None = 30.0) -> bool:
        """Ends all sessions. Unloads all models when the requests in progress have finished.

        Args:
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            whether all requests have finished.
        """
        end = None if timeout is None else time.monotonic() + timeout
        self._closed = True
        self.sessions.close()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_left(end))
        finished = self._updater.close(_left(end))
        with self._lock:
            models, self._models = self._models, {}
            for served in models.values():
                self._updater.unload(served, served.available)
            draining = list(self._updater.draining)
        for thread in draining:
            thread.join(_left(end))
        finished = finished and not any(thread.is_alive() for thread in draining)
        self._pool.shutdown(wait=finished, cancel_futures=True)
        return finished

    def _search_forever(self) -> None:
        pause = self._poll_seconds or None
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            if self._closed:
                return
            with self._lock:
                models = list(self._models.values())
            pause = self._updater.retry(models)
            if self._poll_seconds:
                pause = min(self._poll_seconds, math.inf if pause is None else pause)
            try:
                if self._poll_seconds:
                    self.search()
            except Exception:
                LOG.exception("the search for new versions failed")


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.0, end - time.monotonic())

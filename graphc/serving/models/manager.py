"""`Manager`: keeps the right versions of all models available, without a gap."""

from __future__ import annotations

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
from graphc.serving.config import BatchingConfig, ModelConfig, Specific, check_names
from graphc.serving.failures import Failure
from graphc.serving.models.loader import Loader, Observe
from graphc.serving.models.servable import LOG, Servable, error_code, text_of
from graphc.serving.models.served import Overview, Served, Version
from graphc.serving.models.versions import Found, VersionStatus, find, select
from graphc.store.folder import ExecutableCache, open_cache

_MOST_STEPS = 256  # compiled sizes of each signature: clients must not fill the memory


class Manager:
    """The models of a server. Thread-safe.

    A version is loaded, compiled and warmed up before it is available; then the version before it
    takes no further requests, finishes those that it has, and is unloaded. A version that cannot be
    loaded displaces nothing: its state says why, and it is tried again when its file changes. With
    the policy Latest, the next older version is served instead. If the folder of a model
    disappears, what is loaded stays.

    Args:
        configs: the models.
        batching: how requests are joined to batches; None runs each request alone.
        observe: called after each batch with the model, the signature and the report.
        poll_seconds: the time between two searches for new versions; 0 searches only in `start`
            and `reload`.
        threads: how many requests run at the same time without batching.
        warm_up: whether versions run before they take requests.
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
        poll_seconds: float = 1.0,
        threads: int = 4,
        warm_up: bool = True,
        devices: Sequence[jax.Device] = (),
        cache: ExecutableCache | Default | None = DEFAULT,
        trust_native: bool = False,
        limits: Limits | None = None,
    ) -> None:
        check_names(tuple(configs))
        self._models = {config.name: Served(config) for config in configs}
        self._poll_seconds = poll_seconds
        kept = open_cache(CompileOptions()) if isinstance(cache, Default) else cache
        self.sharing = Sharing(cache=kept, most_steps=_MOST_STEPS)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="graphc-request")
        self._loader = Loader(
            self._pool,
            tuple(devices),
            self.sharing,
            batching,
            observe or (lambda model, signature, report: None),
            warm_up,
            trust_native,
            limits,
        )
        self._lock = threading.Lock()  # held for moments: requests take it
        self._work = threading.Lock()  # held while versions are loaded
        self._draining: set[threading.Thread] = set()
        self._wake = threading.Event()
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
        """Whether each model has an available version."""
        with self._lock:
            return all(served.available for served in self._models.values())

    def _served(self, name: str) -> Served:
        served = self._models.get(name)
        if served is None:
            raise Failure("NOT_FOUND", f"Could not find any versions of model {name}")
        return served

    # -- the life of the manager ----------------------------------------------------------------

    def start(self) -> None:
        """Loads the versions that there are, and begins to search for new ones."""
        self.poll()
        self._thread = threading.Thread(target=self._poll_forever, name="graphc-poll", daemon=True)
        self._thread.start()

    def poll(self) -> None:
        """Searches once for new versions. Returns when they are loaded or have failed."""
        with self._work:
            with self._lock:
                models = list(self._models.values())
            for served in models:
                self._update(served)

    def reload(self, configs: Sequence[ModelConfig], wait: bool = True) -> None:
        """Replaces the configuration of all models. Models that it does not name are unloaded.

        Args:
            wait: returns when all versions are loaded. Otherwise they are loaded in the
                background.

        Raises:
            Failure: INVALID_ARGUMENT: the configuration is not valid; nothing changes.
                FAILED_PRECONDITION, if it waits: a label names a version that is not available; the
                label is not changed. Other codes, if it waits: a version could not be loaded.
        """
        try:
            check_names(tuple(configs))
        except GraphcError as error:
            raise Failure("INVALID_ARGUMENT", text_of(error)) from error
        with self._work:
            with self._lock:
                before, self._models = self._models, {}
                for config in configs:
                    served = before.pop(config.name, None) or Served(config)
                    served.config = config
                    self._models[config.name] = served
                models = list(self._models.values())
                for served in before.values():
                    self._unload(served, served.available)
            if wait:
                for served in models:
                    self._update(served)
        if not wait:
            self._wake.set()
            return
        with self._lock:
            problem = next(filter(None, (served.problem() for served in models)), None)
        if problem is not None:
            raise problem

    def retry(self, name: str) -> None:
        """Searches for new versions at once, in the background. Versions of this model that could
        not be loaded are tried again.

        Raises:
            Failure: NOT_FOUND: no such model.
        """
        with self._lock:
            self._served(name).retry()
        self._wake.set()

    def close(self, timeout: float | None = 30.0) -> bool:
        """Unloads all models when the requests in progress have finished.

        Args:
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            whether all requests have finished.
        """
        end = None if timeout is None else time.monotonic() + timeout
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_left(end))
        with self._lock:
            models, self._models = self._models, {}
            for served in models.values():
                self._unload(served, served.available)
            draining = list(self._draining)
        for thread in draining:
            thread.join(_left(end))
        finished = not any(thread.is_alive() for thread in draining)
        self._pool.shutdown(wait=finished, cancel_futures=True)
        return finished

    def _poll_forever(self) -> None:
        while True:
            self._wake.wait(self._poll_seconds or None)
            self._wake.clear()
            if self._closed:
                return
            try:
                self.poll()
            except Exception:
                LOG.exception("the search for new versions failed")

    # -- versions -------------------------------------------------------------------------------

    def _update(self, served: Served) -> None:
        """Loads what is wanted, then unloads what is not. The caller holds `_work`."""
        found = find(served.config.base_path)
        while not self._closed:
            with self._lock:
                policy = served.config.policy
                served.asked = select(policy, found)
                wanted = select(policy, served.usable(found))
                missing = served.to_load(wanted, found)
            if not missing:
                break
            for number in missing:
                if not self._closed:
                    self._load(served, found[number])
        with self._lock:
            _note_absent(served, found)
            leaving = served.to_unload(wanted) if found else set()
            served.assign(leaving)
            self._unload(served, leaving)
            served.forget(found)

    def _load(self, served: Served, file: Found) -> None:
        """Loads a version, which is then available. If it fails, its state says why."""
        with self._lock:
            version = served.versions.setdefault(file.version, Version(file.version))
            replaced = version.state == "AVAILABLE"  # its file has changed
            if not replaced:
                version.state, version.servable = "LOADING", None
        try:
            servable = self._loader.load(served.name, file)
        except Exception as error:
            LOG.error("%s version %d was not loaded", served.name, file.version, exc_info=error)
            with self._lock:
                version.failed = file
                version.error_code = error_code(error)
                version.error_message = _without_paths(error, file, served.config.base_path)
                version.state = version.state if replaced else "END"
            return
        with self._lock:
            if self._closed:
                return
            before = version.servable
            version.servable, version.loaded, version.failed = servable, file, None
            version.state, version.error_code, version.error_message = "AVAILABLE", "OK", ""
            served.assign()
            if before is not None:
                self._drain(version, before)

    def _unload(self, served: Served, numbers: set[int]) -> None:
        """Begins to unload versions, which take no further requests. The caller holds `_lock`."""
        for number in numbers:
            version = served.versions[number]
            version.state = "UNLOADING"
            if version.servable is not None:
                self._drain(version, version.servable)

    def _drain(self, version: Version, servable: Servable) -> None:
        """Closes a servable in the background. The caller holds `_lock`."""

        def drain() -> None:
            servable.close()
            with self._lock:
                if version.servable is servable:
                    version.servable, version.state = None, "END"
                self._draining.discard(thread)

        name = f"graphc-drain-{servable.name}-{servable.version}"
        thread = threading.Thread(target=drain, name=name, daemon=True)
        self._draining.add(thread)
        thread.start()


def _note_absent(served: Served, found: dict[int, Found]) -> None:
    """Says in the status which versions the configuration names that do not exist."""
    policy = served.config.policy
    for number in policy.versions if isinstance(policy, Specific) else ():
        if number not in found:
            message = f"version {number} was not found in base_path"
            served.versions.setdefault(number, Version(number, "END", "NOT_FOUND", message))
            served.asked.add(number)


def _without_paths(error: Exception, file: Found, base_path: str) -> str:
    text = text_of(error, file.path)
    for path in (file.folder, base_path):
        text = text.replace(path, "...") if path else text
    return text


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.0, end - time.monotonic())

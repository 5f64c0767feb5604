"""`Updater`: loads and unloads versions in threads of its own, so that none waits for another."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

from graphc.errors import ArtifactError, DataError, MissingExtraError
from graphc.serving.config import Specific
from graphc.serving.models.error_texts import error_code, text_of
from graphc.serving.models.loader import Loader
from graphc.serving.models.servable import LOG, Servable
from graphc.serving.models.served import Served, Version
from graphc.serving.models.versions import Found, find, select
from graphc.web.failures import Failure

_FINAL = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "UNIMPLEMENTED")


class Updater:
    """Brings models to the versions that are wanted.

    Methods that say so are called with the manager's lock, and do not wait.

    Args:
        loader: loads a version.
        lock: the manager's, which protects the models.
        load_threads, unload_threads: see `ServerConfig`.
        retries, retry_seconds: `load_retries` and `load_retry_seconds` of it.
        wake: called when a version is to be tried again, see `retry`.

    Attributes:
        draining: the threads that unload versions.
    """

    def __init__(
        self,
        loader: Loader,
        lock: threading.Lock,
        *,
        load_threads: int,
        unload_threads: int,
        retries: int,
        retry_seconds: float,
        wake: Callable[[], None],
    ) -> None:
        self._loader = loader
        self._lock = lock
        self._changed = threading.Condition(lock)
        self._pool = ThreadPoolExecutor(load_threads, thread_name_prefix="graphc-load")
        self._unloads = threading.Semaphore(unload_threads)
        self._retries = retries
        self._retry_seconds = retry_seconds
        self._wake = wake
        self._running = 0
        self._closed = False
        self.draining: set[threading.Thread] = set()

    def search(self, served: Served) -> None:
        """Looks for the files of a model, and begins to load and unload what has changed."""
        found = find(served.config.base_path)
        with self._lock:
            served.found = found
            self._advance(served)

    def retry(self, models: Collection[Served]) -> float | None:
        """Begins to load versions again for which it is time.

        Returns:
            the seconds until it is time for the next one; None if none is waiting.
        """
        now = time.monotonic()
        later: list[float] = []
        with self._lock:
            for served in models:
                waiting = [v for v in served.versions.values() if v.retry_at is not None]
                for version in waiting:
                    if version.retry_at is not None and version.retry_at > now:
                        later.append(version.retry_at)
                    else:
                        version.failed = version.retry_at = None
                if waiting:
                    self._advance(served)
        return min(later) - now if later else None

    def wait(self, models: Collection[Served]) -> None:
        """Returns when none of the models has a version that is being loaded."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or not any(served.loading for served in models)
            )

    def unload(self, served: Served, numbers: Collection[int]) -> None:
        """Begins to unload versions, which take no further requests. The lock is held."""
        for number in numbers:
            version = served.versions[number]
            version.state = "UNLOADING"
            if version.servable is not None:
                self._drain(version, version.servable)

    def close(self, timeout: float | None) -> bool:
        """Loads nothing more, and waits for loads in progress.

        Returns:
            whether there are none left.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._changed:
            return self._changed.wait_for(lambda: self._running == 0, timeout)

    # -- loading --------------------------------------------------------------------------------

    def _advance(self, served: Served) -> None:
        """Begins to load what is wanted; when all of it has been tried, unloads what is not. The
        lock is held."""
        if self._closed or served.removed:
            return
        found, policy = served.found, served.config.policy
        served.asked = select(policy, found)
        wanted = select(policy, served.usable(found))
        for number in served.to_load(wanted, found):
            self._begin(served, found[number])
        if not served.loading:
            _note_absent(served)
            leaving = served.to_unload(wanted) if found else set()
            served.assign(leaving)
            self.unload(served, leaving)
            served.forget(found)

    def _begin(self, served: Served, file: Found) -> None:
        version = served.versions.setdefault(file.version, Version(file.version))
        if version.state != "AVAILABLE":  # otherwise its file has changed
            version.state, version.servable = "LOADING", None
        if version.tried != file:
            version.tried, version.tries = file, 0
        version.tries += 1
        version.retry_at = None
        served.loading.add(file.version)
        self._pool.submit(self._load, served, version, file)

    def _load(self, served: Served, version: Version, file: Found) -> None:
        with self._lock:
            self._running += 1
        servable: Servable | None = None
        error: Exception | None = None
        try:
            servable = self._loader.load(served.name, file)
        except Exception as failure:
            LOG.error("%s version %d was not loaded", served.name, file.version, exc_info=failure)
            error = failure
        with self._changed:
            self._running -= 1
            served.loading.discard(file.version)
            if servable is not None:
                self._loaded(served, version, file, servable)
            elif error is not None:
                self._failed(served, version, file, error)
            self._advance(served)
            self._changed.notify_all()

    def _loaded(self, served: Served, version: Version, file: Found, servable: Servable) -> None:
        """Makes a version available, unless it is not wanted any more."""
        now = served.found.get(file.version)
        if self._closed or served.removed or now is None or now.path != file.path:
            version.state = "AVAILABLE" if version.servable is not None else "END"
            self._drain(version, servable)
            return
        before = version.servable
        version.servable, version.loaded, version.failed = servable, file, None
        version.state, version.error_code, version.error_message = "AVAILABLE", "OK", ""
        served.assign()
        if before is not None:
            self._drain(version, before)

    def _failed(self, served: Served, version: Version, file: Found, error: Exception) -> None:
        """Says why a version could not be loaded, and whether it is tried again."""
        version.failed = file
        version.error_code = error_code(error)
        version.error_message = _without_paths(error, file, served.config.base_path)
        if not is_final(error) and version.tries <= self._retries and not self._closed:
            version.retry_at = time.monotonic() + self._retry_seconds
            again = f"try {version.tries} of {self._retries + 1}"
            version.error_message += f" ({again}; the next one follows)"
            self._wake()
        elif version.state != "AVAILABLE":
            version.state = "END"

    # -- unloading ------------------------------------------------------------------------------

    def _drain(self, version: Version, servable: Servable) -> None:
        """Closes a servable in the background. The lock is held."""

        def drain() -> None:
            servable.uses.drain()
            with self._unloads:
                servable.close()
            with self._lock:
                if version.servable is servable:
                    version.servable, version.state = None, "END"
                self.draining.discard(thread)

        name = f"graphc-drain-{servable.name}-{servable.version}"
        thread = threading.Thread(target=drain, name=name, daemon=True)
        self.draining.add(thread)
        thread.start()


def is_final(error: BaseException) -> bool:
    """Whether loading the same file again would fail again, as far as the error and its causes
    say."""
    causes = _causes(error)
    for cause in causes:  # also the cause of an error of the file
        no_file = isinstance(cause, OSError) and cause.errno == errno.EINVAL  # a pipe, or the like
        if isinstance(cause, (OSError, MemoryError)) and not no_file:
            return False
    return any(
        cause.code in _FINAL
        if isinstance(cause, Failure)
        else isinstance(cause, (ArtifactError, DataError, MissingExtraError))
        for cause in causes
    )


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None:
        found.append(error)
        error = error.__cause__
    return found


def _note_absent(served: Served) -> None:
    """Says in the status which versions the configuration names that do not exist."""
    policy = served.config.policy
    for number in policy.versions if isinstance(policy, Specific) else ():
        if number not in served.found:
            message = f"version {number} was not found in base_path"
            served.versions.setdefault(number, Version(number, "END", "NOT_FOUND", message))
            served.asked.add(number)


def _without_paths(error: Exception, file: Found, base_path: str) -> str:
    """The text for the status. What a failed run says is in its causes."""
    of_file = [cause for cause in _causes(error) if isinstance(cause, ArtifactError)]
    text = text_of(of_file[0] if of_file else error, file.path)
    for path in (file.folder, base_path):
        text = text.replace(path, "...") if path else text
    return text

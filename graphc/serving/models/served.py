"""`Served`: the versions of one model, their states, and which of them takes a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from graphc.serving.config import ModelConfig
from graphc.serving.models.servable import Servable
from graphc.serving.models.traffic import Traffic
from graphc.serving.models.versions import Found, VersionStatus
from graphc.web.failures import Failure

_ENDED = 16  # versions without a problem that stay in the status after their end


@dataclass
class Version:
    """One version in the server.

    Attributes:
        servable: set while it is available, and while it drains.
        loaded: the file that the servable was loaded from.
        failed: the file that could not be loaded. It is not tried again until it changes, or
            until `retry_at`.
        retry_at: when it is tried again, in seconds of `time.monotonic()`; None if it is not.
        tried: the file that was tried last.
        tries: how often it has been tried.
    """

    number: int
    state: str = "START"
    error_code: str = "OK"
    error_message: str = ""
    servable: Servable | None = None
    loaded: Found | None = None
    failed: Found | None = None
    retry_at: float | None = None
    tried: Found | None = None
    tries: int = 0

    @property
    def status(self) -> VersionStatus:
        requests = 0 if self.servable is None else self.servable.uses.total
        return VersionStatus(self.number, self.state, self.error_code, self.error_message, requests)


class Overview(NamedTuple):
    """How requests reach the versions of a model.

    Attributes:
        labels: label -> version, those that are assigned.
        shares: version -> percent of the requests that name no version and no label.
        waiting: signature -> how many batches wait, of all versions.
    """

    labels: dict[str, int]
    shares: dict[int, float]
    waiting: dict[str, int]


@dataclass
class Served:
    """One model. The manager's lock protects it; no method waits.

    Attributes:
        versions: every version that was found or used, also those that failed or ended.
        labels: label -> version, only labels that were assigned to available versions.
        asked: the versions that the configuration asks for, also those that cannot be loaded.
        found: the versions in the file system, at the last search.
        loading: the versions that are being loaded.
        removed: whether the configuration does not contain the model any more.
    """

    config: ModelConfig
    versions: dict[int, Version] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    found: Mapping[int, Found] = field(default_factory=dict)
    loading: set[int] = field(default_factory=set)
    removed: bool = False
    _traffic: Traffic = field(default_factory=lambda: Traffic({}))

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def available(self) -> set[int]:
        return {n for n, version in self.versions.items() if version.state == "AVAILABLE"}

    @property
    def has_failed(self) -> bool:
        """Whether there are versions, and none of them could be loaded or will be tried again."""
        tried = [v for v in self.versions.values() if v.failed is not None]
        waiting = any(v.retry_at is not None for v in tried)
        return bool(tried) and not waiting and not self.loading and not self.available

    # -- requests -------------------------------------------------------------------------------

    def enter(self, version: int | None, label: str | None) -> Servable:
        """The servable for a request, which now uses it.

        Raises:
            Failure: NOT_FOUND: the version is not available. INVALID_ARGUMENT: there is no such
                label.
        """
        if label is not None:
            if version is not None:
                raise Failure("INVALID_ARGUMENT", "a request names a version or a label, not both")
            version = self.labels.get(label)
            if version is None:
                raise Failure(
                    "INVALID_ARGUMENT", f"Unrecognized servable version label: {label[:100]}"
                )
        asked = f"Specific({self.name}, {version})"
        if version is None:
            available = self.available
            version = self._traffic.next(available) or max(available, default=None)
            asked = f"Latest({self.name})"
        found = None if version is None else self.versions.get(version)
        if found is None or found.state != "AVAILABLE" or found.servable is None:
            raise Failure("NOT_FOUND", f"Servable not found for request: {asked}")
        found.servable.uses.enter()
        return found.servable

    # -- what to load and to unload -------------------------------------------------------------

    def usable(self, found: Mapping[int, Found]) -> set[int]:
        """The versions in the file system, without those whose file is known to fail."""
        return {
            n
            for n, file in found.items()
            if n in self.available or n not in self.versions or self.versions[n].failed != file
        }

    def to_load(self, wanted: Iterable[int], found: Mapping[int, Found]) -> list[int]:
        """The wanted versions that are not loaded from the present files, the largest first."""

        def is_missing(n: int) -> bool:
            version = self.versions.get(n)
            if n in self.loading:
                return False
            if version is None:
                return True
            loaded = version.state == "AVAILABLE" and version.loaded == found[n]
            return not loaded and version.failed != found[n]

        return sorted(filter(is_missing, wanted), reverse=True)

    def to_unload(self, wanted: set[int]) -> set[int]:
        """The available versions that are not wanted; none if no wanted version is available, so
        that nothing displaces a working version but a working version."""
        available = self.available
        return available - wanted if available & wanted else set()

    # -- labels and traffic ---------------------------------------------------------------------

    def unavailable_label(self) -> tuple[str, int] | None:
        """A label of the configuration whose version is not available, with the version."""
        available = self.available
        missing = [row for row in self.config.labels.items() if row[1] not in available]
        return missing[0] if missing else None

    def assign(self, leaving: Set[int] = frozenset()) -> None:
        """Assigns the labels of the configuration whose versions are available and stay so.
        Another label keeps its old version."""
        staying = self.available - leaving
        wanted = self.config.labels
        kept = {label: v for label, v in self.labels.items() if label in wanted}
        self.labels = kept | {label: v for label, v in wanted.items() if v in staying}
        percent: dict[int, float] = {}
        for target, share in self.config.traffic.items():
            version = self.labels.get(target) if isinstance(target, str) else target
            if version is not None:
                percent[version] = percent.get(version, 0) + share
        if percent != self._traffic.percent:
            self._traffic = Traffic(percent)

    # -- status ---------------------------------------------------------------------------------

    def overview(self) -> Overview:
        """How requests reach the versions, and what waits."""
        available = self.available
        percent = {v: p for v, p in self._traffic.percent.items() if p and v in available}
        if available and not percent:
            percent = {max(available): 100.0}
        total = sum(percent.values())
        waiting: dict[str, int] = {}
        for servable in [v.servable for v in self.versions.values() if v.servable is not None]:
            for signature, count in servable.waiting().items():
                waiting[signature] = waiting.get(signature, 0) + count
        shares = {version: 100 * part / total for version, part in percent.items()}
        return Overview(dict(self.labels), shares, waiting)

    def retry(self) -> None:
        """Lets the next search try versions again that could not be loaded."""
        for version in self.versions.values():
            version.failed = version.retry_at = version.tried = None

    def problem(self) -> Failure | None:
        """What the last update did not achieve."""
        label = self.unavailable_label()
        if label is not None:
            return Failure(
                "FAILED_PRECONDITION",
                f"Request to assign label to version {label[1]} of model {self.name}, which is not "
                "currently available for inference",
            )
        for version in [self.versions[n] for n in self.asked if n in self.versions]:
            if version.error_code != "OK":
                what = f"version {version.number} of model {self.name}: {version.error_message}"
                return Failure(version.error_code, what)
        if not self.available or not self.asked:
            return Failure("NOT_FOUND", f"Could not find any versions of model {self.name}")
        return None

    def forget(self, found: Mapping[int, Found]) -> None:
        """Removes the oldest ended versions that have no file, or no problem, and those that are
        not asked for any more and do not exist."""
        for n, version in list(self.versions.items()):
            absent = version.error_code == "NOT_FOUND" and n not in self.asked
            failed = version.failed is not None and n not in found
            if version.state == "END" and (absent or failed):
                del self.versions[n]
        ended = [n for n, v in self.versions.items() if v.state == "END" and v.failed is None]
        for n in sorted(ended)[:-_ENDED]:
            del self.versions[n]

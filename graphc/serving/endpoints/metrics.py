"""Counters and histograms, written in the text format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from graphc._version import __version__

Labels = tuple[str, ...]

# TensorFlow Serving's buckets: 33 powers of 1.8 from 10 microseconds.
_MICROSECONDS: Final = tuple(10 * 1.8**power for power in range(33))
_SECONDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
)
_MOST: Final = 4096  # sets of labels of one metric: each new version of a model adds some
_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Counter:
    """A number that only grows, for each set of labels. Thread-safe."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Labels) -> None:
        self.name, self.text, self.labels = name, text, labels
        self._values: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def add(self, *labels: str, by: float = 1) -> None:
        """Adds to the number with these labels."""
        with self._lock:
            if labels not in self._values:
                _make_room(self._values)
            self._values[labels] = self._values.get(labels, 0) + by

    def value(self, *labels: str) -> float:
        """The number with these labels."""
        return self._values.get(labels, 0)

    def rows(self) -> list[tuple[Labels, float]]:
        """The labels and the number of each set of labels."""
        with self._lock:
            return list(self._values.items())

    def samples(self) -> Iterator[tuple[str, str, float]]:
        """Suffix of the name, labels and value of each sample."""
        for labels, value in self.rows():
            yield "", _labels(self.labels, labels), value


class Histogram:
    """How many values there were up to each bound, for each set of labels. Thread-safe."""

    kind = "histogram"

    def __init__(self, name: str, text: str, labels: Labels, bounds: tuple[float, ...]) -> None:
        self.name, self.text, self.labels, self.bounds = name, text, labels, bounds
        self._counts: dict[Labels, list[float]] = {}
        self._lock = threading.Lock()

    def observe(self, value: float, *labels: str) -> None:
        """Adds a value."""
        at = bisect_left(self.bounds, value)
        with self._lock:
            counts = self._counts.get(labels)
            if counts is None:  # a count for each bound, one beyond them, and the sum
                _make_room(self._counts)
                counts = self._counts[labels] = [0.0] * (len(self.bounds) + 2)
            counts[at] += 1
            counts[-1] += value

    def rows(self) -> list[tuple[Labels, list[float]]]:
        """The labels and the counts: one for each bound, one beyond them, and the sum."""
        with self._lock:
            return [(labels, list(counts)) for labels, counts in self._counts.items()]

    def samples(self) -> Iterator[tuple[str, str, float]]:
        """As for a counter."""
        names = (*self.labels, "le")
        for labels, counts in self.rows():
            total = 0.0
            for bound, count in zip((*self.bounds, None), counts, strict=False):
                total += count
                le = "+Inf" if bound is None else f"{bound:.10g}"
                yield "_bucket", _labels(names, (*labels, le)), total
            yield "_sum", _labels(self.labels, labels), counts[-1]
            yield "_count", _labels(self.labels, labels), total


class VersionNumbers(NamedTuple):
    """The requests to a version: how many, how many failed, and their time in seconds.

    Attributes:
        p50, p99: quantiles; None without requests.
    """

    requests: int
    errors: int
    p50: float | None
    p99: float | None


class BatchNumbers(NamedTuple):
    """The batches of a signature.

    Attributes:
        rows: of all of them, without padding.
        padding: the rows that were added.
        reasons: why they were released -> how many.
    """

    batches: int
    rows: int
    padding: int
    reasons: dict[str, int]


class Metrics:
    """The metrics of a server: TensorFlow Serving's names, and ours (`graphc_serving_...`).

    Examples:
        >>> from graphc.serving.endpoints.metrics import Metrics
        >>> metrics = Metrics()
        >>> metrics.request("digits", 3, "Predict", "OK", 0.002)
        >>> metrics.request_count.value("digits", "OK")
        1
    """

    def __init__(self) -> None:
        prefix, ours = ":tensorflow:serving:", "graphc_serving_"
        self.request_count = Counter(
            f"{prefix}request_count", "Requests by status.", ("model_name", "status")
        )
        self._latency = Histogram(
            f"{prefix}request_latency", "Time of a request in microseconds.",
            ("model_name", "API", "entrypoint"), _MICROSECONDS,
        )  # fmt: skip
        self.requests = Counter(
            f"{ours}requests_total", "Requests by version and status.",
            ("model", "version", "method", "protocol", "status"),
        )  # fmt: skip
        self._seconds = Histogram(
            f"{ours}request_seconds", "Time of a request.", ("model", "version"), _SECONDS
        )
        self.batches = Counter(
            f"{ours}batches_total", "Batches by why they were released.",
            ("model", "signature", "reason"),
        )  # fmt: skip
        self._batch_rows = Histogram(
            f"{ours}batch_rows", "Rows of a batch, without padding.", ("model", "signature"), _ROWS
        )
        self._padding = Counter(
            f"{ours}padded_rows_total", "Rows added to batches.", ("model", "signature")
        )
        self._families: list[Counter | Histogram] = [
            self.request_count, self._latency, self.requests, self._seconds, self.batches,
            self._batch_rows, self._padding,
        ]  # fmt: skip
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []

    def request(
        self,
        model: str,
        version: int | None,
        method: str,
        status: str,
        seconds: float,
        protocol: str = "GRPC",
    ) -> None:
        """Counts a request.

        Args:
            model: "" for a model that is not served, so that clients cannot make up labels.
            method: "Predict", "Classify", ...
            protocol: "GRPC" or "REST".
        """
        shown = "" if version is None else str(version)
        self.request_count.add(model, status)
        self._latency.observe(seconds * 1e6, model, method, protocol)
        self.requests.add(model, shown, method, protocol, status)
        self._seconds.observe(seconds, model, shown)

    def batch(self, model: str, signature: str, rows: int, padded_to: int, reason: str) -> None:
        """Counts a batch: `rows` of requests, padded to `padded_to`; `reason` of its release."""
        self.batches.add(model, signature, reason)
        self._batch_rows.observe(rows, model, signature)
        self._padding.add(model, signature, by=padded_to - rows)

    def versions(self) -> dict[tuple[str, str], VersionNumbers]:
        """Model and version -> its requests. The version is "" for requests that had none."""
        errors: dict[tuple[str, str], int] = {}
        for (model, version, _, _, status), count in self.requests.rows():
            if status != "OK":
                key = model, version
                errors[key] = errors.get(key, 0) + int(count)
        return {
            (model, version): VersionNumbers(
                int(sum(counts[:-1])),
                errors.get((model, version), 0),
                quantile(_SECONDS, counts[:-1], 0.5),
                quantile(_SECONDS, counts[:-1], 0.99),
            )
            for (model, version), counts in self._seconds.rows()
        }

    def signatures(self) -> dict[tuple[str, str], BatchNumbers]:
        """Model and signature -> its batches."""
        found: dict[tuple[str, str], BatchNumbers] = {}
        reasons: dict[tuple[str, str], dict[str, int]] = {}
        for (model, signature, reason), count in self.batches.rows():
            reasons.setdefault((model, signature), {})[reason] = int(count)
        for (model, signature), counts in self._batch_rows.rows():
            padding = int(self._padding.value(model, signature))
            found[model, signature] = BatchNumbers(
                int(sum(counts[:-1])), int(counts[-1]), padding, reasons.get((model, signature), {})
            )
        return found

    def add(self, family: Counter | Histogram) -> None:
        """Writes another counter or histogram too."""
        self._families.append(family)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Writes a number that is read for each scrape."""
        self._gauges.append((name, text, read))

    def text(self) -> bytes:
        """All metrics in Prometheus's text format 0.0.4."""
        lines = []
        for family in self._families:
            lines += _head(family.name, family.text, family.kind)
            for suffix, labels, value in family.samples():
                lines.append(f"{family.name}{suffix}{labels} {value:.17g}")
        for name, text, read in self._gauges:
            lines += [*_head(name, text, "gauge"), f"{name} {read():.17g}"]
        version = _labels(("version",), (__version__,))
        lines += [*_head("graphc_serving_info", "The version.", "gauge"),
                  f"graphc_serving_info{version} 1"]  # fmt: skip
        return ("\n".join(lines) + "\n").encode()


def quantile(bounds: Sequence[float], counts: Sequence[float], share: float) -> float | None:
    """A quantile of a histogram, by linear interpolation, as Prometheus computes it.

    Args:
        bounds: the upper bounds of the buckets.
        counts: how many values are in each, and how many are beyond the last bound.

    Returns:
        the value; the last bound if it is larger; None without values.

    Examples:
        >>> from graphc.serving.endpoints.metrics import quantile
        >>> quantile((1.0, 2.0), (5, 5, 0), 0.9)
        1.8
    """
    total = sum(counts)
    if not total:
        return None
    rank, before, lower = share * total, 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and before + count >= rank:
            return lower + (bound - lower) * (rank - before) / count
        before, lower = before + count, bound
    return bounds[-1]


def _make_room(sets: dict[Labels, Any]) -> None:
    """Removes the oldest set of labels, if there are too many."""
    if len(sets) >= _MOST:
        del sets[next(iter(sets))]


def _head(name: str, text: str, kind: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _labels(names: Labels, values: Labels) -> str:
    pairs = [f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

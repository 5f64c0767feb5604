"""Configuration of the server as frozen records. Files and flags are parsed into them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from graphc.serving.config_checks import (
    MAX_BODY_BYTES,
    check_bool,
    check_devices,
    check_int,
    check_name,
    check_origins,
    check_seconds,
    check_text,
    check_traffic,
    check_version,
    checked_path,
    most_request_bytes,
    refuse,
)


@dataclass(frozen=True)
class Latest:
    """Serve the `count` largest versions.

    Raises:
        AttributeValueError: `count` is not an int of at least 1.

    Examples:
        >>> gc.serving.ModelConfig("digits", "/models/digits", gc.serving.Latest(2)).policy
        Latest(count=2)
    """

    count: int = 1

    def __post_init__(self) -> None:
        check_int("Latest: count", self.count, 1)


@dataclass(frozen=True)
class All:
    """Serve every version.

    Examples:
        >>> gc.serving.ModelConfig("digits", "/models/digits", gc.serving.All()).policy
        All()
    """


@dataclass(frozen=True)
class Specific:
    """Serve these versions.

    Raises:
        AttributeValueError: there is none, or one is not a version.

    Examples:
        >>> gc.serving.ModelConfig("digits", "/models/digits", gc.serving.Specific((3, 4))).policy
        Specific(versions=(3, 4))
    """

    versions: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "versions", tuple(self.versions))
        if not self.versions:
            refuse("Specific: versions must not be empty", "Specific((1, 2))")
        for version in self.versions:
            check_version("Specific", version)


Policy = Latest | All | Specific


@dataclass(frozen=True)
class ModelConfig:
    """One model of the server.

    Attributes:
        name: the name in requests.
        base_path: a folder with one folder or file a version (`<version>/model.gcx` or
            `<version>.gcx`), or one file, which is version 1.
        policy: the versions to serve.
        labels: label -> version. A request can name a label in place of a version.
        traffic: label or version -> percent of the requests that name neither. The percentages
            have the sum 100. Without it, these requests go to the largest version.

    Raises:
        AttributeValueError: a value is not valid.

    Examples:
        >>> from graphc.serving.config import Latest, ModelConfig
        >>> canary = ModelConfig(
        ...     "digits", "/models/digits", Latest(2), {"stable": 3, "canary": 4},
        ...     traffic={"stable": 95, "canary": 5},
        ... )
        >>> canary.labels["stable"]
        3
    """

    name: str
    base_path: str
    policy: Policy = field(default_factory=Latest)
    labels: Mapping[str, int] = field(default_factory=dict)
    traffic: Mapping[str | int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name)
        where = f"model {self.name!r}"
        object.__setattr__(self, "base_path", checked_path(where, self.base_path))
        if not isinstance(self.policy, (Latest, All, Specific)):
            refuse(
                f"{where}: policy must be Latest, All or Specific, got {self.policy!r}",
                "Latest(2)",
            )
        for label, version in self.labels.items():
            check_text(f"{where}: a label", label)
            check_version(f"{where}: label {label!r}", version)
        check_traffic(where, self.traffic, self.labels)
        object.__setattr__(self, "labels", MappingProxyType(dict(self.labels)))
        object.__setattr__(self, "traffic", MappingProxyType(dict(self.traffic)))


@dataclass(frozen=True)
class BatchingConfig:
    """How concurrent requests are joined to batches. The names are those of TensorFlow Serving.

    Attributes:
        max_batch_size: the most rows in a batch.
        batch_timeout_micros: how long the first request of a batch waits for others.
        max_enqueued_batches: how many batches may wait for a thread. A request beyond that fails
            with UNAVAILABLE, as in TensorFlow Serving.
        num_batch_threads: how many batches run at the same time.
        allowed_batch_sizes: the compiled sizes, in increasing order; the last is max_batch_size.
            If empty: the powers of two below max_batch_size, and max_batch_size.
        pad_variable_length_inputs: whether requests of different lengths may be joined.
        buckets: the name of another open size -> the values that it is padded to, in increasing
            order. They hold for all signatures with such a size, in place of those that they were
            saved with. A version in which it cannot be padded is not loaded.

    Raises:
        AttributeValueError: a value is not valid.

    Examples:
        >>> gc.serving.BatchingConfig(max_batch_size=32).batch_timeout_micros
        1000
        >>> gc.serving.BatchingConfig(buckets={"time": (16, 64)}).buckets["time"]
        (16, 64)
    """

    max_batch_size: int = 64
    batch_timeout_micros: int = 1000
    max_enqueued_batches: int = 64
    num_batch_threads: int = 2
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False
    buckets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "allowed_batch_sizes", tuple(self.allowed_batch_sizes))
        for name in ("max_batch_size", "max_enqueued_batches", "num_batch_threads"):
            check_int(name, getattr(self, name), 1)
        check_int("batch_timeout_micros", self.batch_timeout_micros, 0)
        sizes = self.allowed_batch_sizes
        for size in sizes:
            check_int("allowed_batch_sizes", size, 1)
        if sizes and (list(sizes) != sorted(set(sizes)) or sizes[-1] != self.max_batch_size):
            refuse(
                f"allowed_batch_sizes must increase and end with max_batch_size "
                f"({self.max_batch_size}), got {list(sizes)}"
            )
        check_bool("pad_variable_length_inputs", self.pad_variable_length_inputs)
        buckets = {name: tuple(row) for name, row in self.buckets.items()}
        for name, row in buckets.items():
            for size in row:
                check_int(f"buckets of {name!r}", size, 1)
            if not row or list(row) != sorted(set(row)):
                refuse(f"buckets of {name!r} must increase, got {list(row)}")
        object.__setattr__(self, "buckets", MappingProxyType(buckets))


@dataclass(frozen=True)
class SessionConfig:
    """The limits of sessions: of the variables that the server keeps for clients.

    Attributes:
        max_sessions: how many may be open; 0 disables sessions.
        max_bytes: how many bytes their variables may have together.
        idle_seconds: a session ends when it has not been used for this time.
        max_seconds: a session ends after this time, even if it is in use. A version that was
            replaced stays in memory at most so long because of its sessions.

    Raises:
        AttributeValueError: a value is not valid.

    Examples:
        >>> gc.serving.SessionConfig(max_sessions=8).idle_seconds
        600.0
    """

    max_sessions: int = 64
    max_bytes: int = 1 << 30
    idle_seconds: float = 600.0
    max_seconds: float = 3600.0

    def __post_init__(self) -> None:
        check_int("max_sessions", self.max_sessions, 0)
        check_int("max_bytes", self.max_bytes, 0)
        for name in ("idle_seconds", "max_seconds"):
            check_seconds(name, getattr(self, name))


@dataclass(frozen=True)
class TlsConfig:
    """TLS for the gRPC endpoint alone, with texts in PEM form: TensorFlow Serving's SSLConfig.

    Attributes:
        key: the private key.
        certificate: the certificate of the server, and those between it and its authority.
        client_ca: clients must present a certificate signed by this authority; None asks for none.

    Raises:
        AttributeValueError: a text is not in PEM form.

    Examples:
        >>> gc.serving.TlsConfig("server.key", "server.crt")
        Traceback (most recent call last):
        ...
        graphc.errors.AttributeValueError: TlsConfig: key must be a text in PEM form...
    """

    key: str = field(repr=False)
    certificate: str = field(repr=False)
    client_ca: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("key", "certificate", "client_ca"):
            text = getattr(self, name)
            if name == "client_ca" and text is None:
                continue
            if not isinstance(text, str) or "-----BEGIN " not in text:
                refuse(
                    f"TlsConfig: {name} must be a text in PEM form",
                    "give the text of the file, which begins with -----BEGIN, not its path",
                )


@dataclass(frozen=True)
class ServerConfig:
    """The whole server.

    Attributes:
        models: the models to serve.
        batching: how requests are joined; None runs each request alone.
        sessions: the limits of sessions.
        host: the address on which both endpoints listen.
        port: the port for gRPC; 0 selects a free one, None disables gRPC.
        rest_port: the port for REST, likewise.
        poll_seconds: the time between two searches for new versions; 0 searches only once.
        devices: each version is loaded once on each of these devices, and the least busy one runs a
            request: a number of them, or names such as "/gpu:1". None means JAX's default device.
        threads: how many requests run at the same time without batching.
        warm_up: whether a version runs before it takes requests.
        load_threads, unload_threads: how many versions are loaded, and freed, at the same time.
        load_retries: how often a version is tried again whose load failed for another reason than
            its file, such as a lack of memory.
        load_retry_seconds: the time before it is tried again.
        max_body_bytes: the largest request body.
        max_request_bytes: the bytes of all requests in progress together, by REST and gRPC; further
            ones get RESOURCE_EXHAUSTED. It is at least twice `max_body_bytes`, because a message by
            gRPC counts as the largest one while it arrives, and such messages may take half of it.
            None is 4 GiB, or twice `max_body_bytes`.
        max_concurrent: how many requests may be in progress; further ones get RESOURCE_EXHAUSTED.
        request_seconds: the time limit of a request that has none.
        drain_seconds: how long SIGTERM waits for requests in progress.
        metrics_path: the path of the Prometheus metrics; None disables them.
        access_log: the file for one JSON line a request; "-" is stdout, None disables it.
        tokens: the accepted bearer tokens; empty: no authentication.
        tls_certificate, tls_key: PEM files; both or none.
        tls_client_ca: a PEM file; clients must then present a certificate signed by it.
        grpc_tls: TLS of the gRPC endpoint, in place of these files.
        cors_origins: the origins whose pages may call the REST endpoint from a browser, such as
            "https://example.com"; "*" allows all.
        status_page: whether the REST endpoint has a status page, at `/` and `/status`.

    Raises:
        AttributeValueError: a value is not valid.

    Examples:
        >>> model = gc.serving.ModelConfig("digits", "/models/digits")
        >>> gc.serving.ServerConfig((model,), tokens=("secret",)).rest_port
        8501
    """

    models: tuple[ModelConfig, ...]
    batching: BatchingConfig | None = None
    sessions: SessionConfig = field(default_factory=SessionConfig)
    host: str = "127.0.0.1"
    port: int | None = 8500
    rest_port: int | None = 8501
    poll_seconds: float = 1.0
    devices: int | tuple[str, ...] | None = None
    threads: int = 4
    warm_up: bool = True
    load_threads: int = 4
    unload_threads: int = 4
    load_retries: int = 5
    load_retry_seconds: float = 60.0
    max_body_bytes: int = MAX_BODY_BYTES
    max_request_bytes: int | None = None
    max_concurrent: int = 256
    request_seconds: float = 30.0
    drain_seconds: float = 30.0
    metrics_path: str | None = "/monitoring/prometheus/metrics"
    access_log: str | None = None
    tokens: tuple[str, ...] = ()
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    grpc_tls: TlsConfig | None = None
    cors_origins: tuple[str, ...] = ()
    status_page: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", tuple(self.models))
        object.__setattr__(self, "tokens", tuple(self.tokens))
        object.__setattr__(self, "cors_origins", tuple(self.cors_origins))
        check_names(self.models)
        for name in ("port", "rest_port"):
            port = getattr(self, name)
            if port is not None and (type(port) is not int or not 0 <= port < 65536):
                refuse(f"{name} must be between 0 and 65535, got {port!r}")
        for name in ("threads", "load_threads", "unload_threads", "max_body_bytes",
                     "max_concurrent"):  # fmt: skip
            check_int(name, getattr(self, name), 1)
        most_request_bytes(self.max_request_bytes, self.max_body_bytes)
        check_int("load_retries", self.load_retries, 0)
        for name in ("poll_seconds", "load_retry_seconds", "request_seconds", "drain_seconds"):
            check_seconds(name, getattr(self, name))
        for name in ("warm_up", "status_page"):
            check_bool(name, getattr(self, name))
        check_origins(self.cors_origins)
        check_devices(self.devices)
        for token in self.tokens:
            check_text("a token", token)
        if (self.tls_certificate is None) != (self.tls_key is None):
            refuse("tls_certificate and tls_key must be given together")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            refuse("tls_client_ca needs tls_certificate and tls_key")


def check_names(models: tuple[ModelConfig, ...]) -> None:
    """Checks that no two models have the same name.

    Raises:
        AttributeValueError: two have.
    """
    seen: set[str] = set()
    for model in models:
        if not isinstance(model, ModelConfig):
            refuse(f"models must be ModelConfig records, got {model!r}")
        if model.name in seen:
            refuse(f"two models are named {model.name!r}", "give each model its own name")
        seen.add(model.name)

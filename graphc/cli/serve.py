"""`graphc serve`: the model server."""

from __future__ import annotations

import argparse
import gc as garbage
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax

from graphc.cli.shared_arguments import chosen
from graphc.errors import AttributeValueError, GraphcError
from graphc.serving.config import (
    BatchingConfig,
    ModelConfig,
    ServerConfig,
    SessionConfig,
    TlsConfig,
)
from graphc.serving.protocol.config_text import (
    parse_batching,
    parse_models,
    parse_monitoring,
    parse_ssl,
)
from graphc.serving.server import Server

_DEFAULT = "default"  # the name of a model without one, as in TensorFlow Serving
_SWITCH = 0.0005  # seconds for which a thread that loads a version may keep requests waiting
_METRICS = "/monitoring/prometheus/metrics"


def run(options: argparse.Namespace) -> None:
    """Serves until SIGTERM or Ctrl-C."""
    if "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
        # A request waits for its result: handing a small program to another thread takes longer
        # than running it.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    config = config_of(options)
    _prepare_process()
    if options.devices is not None:
        from graphc.cli.targets import ask_for_devices  # it imports what trains

        ask_for_devices(options.devices)
    source = options.model_config_file
    server = Server(
        config,
        watch=None if source is None else _Watch(source),
        watch_seconds=options.model_config_file_poll_wait_seconds if source is not None else 0.0,
    )

    def started() -> None:
        _leave_out_of_collections()
        print("\n".join(_lines(server)), flush=True)

    try:
        server.run(started)
    except OSError as error:
        raise GraphcError(
            f"the server cannot listen: {error}",
            hint="choose other ports: --port and --rest_api_port",
        ) from None


def _leave_out_of_collections() -> None:
    """Python's garbage collector no longer visits what is there now: modules, and models, which are
    freed without it. Each full collection would keep all requests waiting for 0.1 s."""
    garbage.collect()
    garbage.freeze()


def _prepare_process() -> None:
    """Allows many connections, and short waits for the interpreter while a version is loaded."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is an open file
    sys.setswitchinterval(_SWITCH)


def config_of(options: argparse.Namespace) -> ServerConfig:
    """The configuration that the flags describe.

    Raises:
        AttributeValueError: flags contradict each other, or a file has an invalid value.
        GraphcError: a file cannot be read.
    """
    same = chosen(
        options, "host", "port", "devices", "max_body_bytes", "max_request_bytes",
        "max_concurrent", "drain_seconds", "access_log", "tls_certificate", "tls_key",
        "tls_client_ca", "status_page",
    )  # fmt: skip
    threads = max(options.grpc_max_threads or 0, options.rest_api_num_threads or 0) or 4
    return ServerConfig(
        _models(options),
        batching=_batching(options),
        sessions=_sessions(options),
        rest_port=options.rest_api_port,
        poll_seconds=options.file_system_poll_wait_seconds,
        threads=threads,
        warm_up=options.enable_model_warmup,
        load_threads=max(options.num_load_threads, 1),
        unload_threads=max(options.num_unload_threads, 1),
        load_retries=options.max_num_load_retries,
        load_retry_seconds=max(options.load_retry_interval_micros, 0) / 1e6,
        request_seconds=options.rest_api_timeout_in_ms / 1000,
        metrics_path=_metrics_path(options),
        tokens=_tokens(options),
        grpc_tls=_grpc_tls(options),
        cors_origins=_origins(options),
        **same,
    )


def _models(options: argparse.Namespace) -> tuple[ModelConfig, ...]:
    given = [options.model, options.model_base_path, options.model_config_file]
    if sum(each is not None for each in given) != 1:
        raise AttributeValueError(
            "give either MODEL, --model_base_path or --model_config_file",
            hint="graphc serve model.gcx",
        )
    if options.model_config_file is not None:
        return parse_models(_read(options.model_config_file), options.model_config_file)
    if options.model_base_path is not None:
        return (ModelConfig(options.model_name or _DEFAULT, options.model_base_path),)
    path = Path(options.model)
    if not path.exists():
        raise GraphcError(f"there is no file or folder {options.model!r}", hint="check the path")
    name = options.model_name or (path.stem if path.is_file() else path.resolve().name)
    return (ModelConfig(name, _artifact(options.model, dict(options.size))),)


def _artifact(path: str, sizes: Mapping[str, int]) -> str:
    """The artifact of a model: the file itself, or that of an imported model."""
    from graphc.importers.files import is_model_file

    if not is_model_file(path):
        if sizes:
            raise AttributeValueError(
                f"--size is for model files of other frameworks; {path!r} is none",
                hint="an artifact has its own signatures",
            )
        return path
    from graphc.importers.artifacts import cached_artifact  # it imports what traces and saves

    print(f"reading {path}", file=sys.stderr, flush=True)
    return str(cached_artifact(path, sizes))


def _sessions(options: argparse.Namespace) -> SessionConfig:
    return SessionConfig(
        max_sessions=options.max_sessions,
        max_bytes=options.max_session_bytes,
        idle_seconds=options.session_idle_seconds,
        max_seconds=options.max_session_seconds,
    )


def _batching(options: argparse.Namespace) -> BatchingConfig | None:
    if not options.enable_batching:
        if options.batching_parameters_file is not None:
            raise AttributeValueError("--batching_parameters_file needs --enable_batching")
        return None
    if options.batching_parameters_file is None:
        return BatchingConfig()
    return parse_batching(_read(options.batching_parameters_file), options.batching_parameters_file)


def _metrics_path(options: argparse.Namespace) -> str | None:
    if options.monitoring_config_file is None:
        return _METRICS
    return parse_monitoring(_read(options.monitoring_config_file), options.monitoring_config_file)


def _tokens(options: argparse.Namespace) -> tuple[str, ...]:
    if options.token_file is None:
        return ()
    tokens = tuple(line.strip() for line in _read(options.token_file).splitlines() if line.strip())
    if not tokens:
        raise AttributeValueError(f"{options.token_file!r} contains no token")
    return tokens


def _grpc_tls(options: argparse.Namespace) -> TlsConfig | None:
    if options.ssl_config_file is None:
        return None
    return parse_ssl(_read(options.ssl_config_file), options.ssl_config_file)


def _origins(options: argparse.Namespace) -> tuple[str, ...]:
    allowed = tuple(options.cors_allowed_origin)
    if allowed and options.rest_api_enable_cors_support:
        raise AttributeValueError(
            "--rest_api_enable_cors_support allows every origin, --cors_allowed_origin only some",
            hint="give one of them",
        )
    return ("*",) if options.rest_api_enable_cors_support else allowed


class _Watch:
    """Reads the configuration file again when it has changed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = self._stamp()

    def __call__(self) -> Sequence[ModelConfig] | None:
        stamp = self._stamp()
        if stamp == self._seen:
            return None
        self._seen = stamp
        return parse_models(_read(self._path), self._path)

    def _stamp(self) -> tuple[int, int, int]:
        found = os.stat(self._path)
        return found.st_mtime_ns, found.st_size, found.st_ino


def _lines(server: Server) -> list[str]:
    """What is served, and where."""
    host = server.config.host
    host = f"[{host}]" if ":" in host else host
    secure = server.config.tls_certificate is not None
    lines = []
    for name, versions in server.available().items():
        shown = ", ".join(map(str, versions)) or "none yet: see /v1/models/" + name
        lines.append(f"model {name!r}: version {shown}")
    if server.rest_port is not None:
        lines.append(f"REST: http{'s' if secure else ''}://{host}:{server.rest_port}/v1/models/")
    if server.port is not None:
        lines.append(f"gRPC: {host}:{server.port}")
    return lines


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise GraphcError(f"cannot read {path!r}: {reason}", hint="check the path") from None

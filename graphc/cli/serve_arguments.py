"""The arguments of `graphc serve`: the flags of TensorFlow Serving under their names, and ours."""

from __future__ import annotations

import argparse

from graphc.cli.shared_arguments import add_size, number, positive


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Serves models by the REST and gRPC protocols of TensorFlow Serving.

    graphc serve digits.gcx
    graphc serve --model_name digits --model_base_path /models/digits --rest_api_port 8501
    graphc serve --model_config_file models.config --enable_batching
    """
    _add_models(parser)
    _add_endpoints(parser)
    _add_limits(parser)
    _add_sessions(parser)
    _add_security(parser)


def _add_models(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("models")
    group.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="a file that gc.save wrote, a model file of another framework, or a folder with one "
        "folder for each version; its name is that of the file or folder",
    )
    add_size(group)
    group.add_argument("--model_name", metavar="NAME", help="the name in requests")
    group.add_argument(
        "--model_base_path", metavar="FOLDER", help="the folder of the versions; name: default"
    )
    group.add_argument(
        "--model_config_file", metavar="FILE", help="several models: a model_config_list as text"
    )
    group.add_argument(
        "--model_config_file_poll_wait_seconds",
        type=duration,
        default=0.0,
        metavar="N",
        help="read the file again after this time (default: never)",
    )
    group.add_argument(
        "--file_system_poll_wait_seconds",
        type=duration,
        default=1.0,
        metavar="N",
        help="the time between two searches for new versions; 0 searches once (default: 1)",
    )
    group.add_argument(
        "--enable_model_warmup", type=boolean, nargs="?", const=True, default=True, metavar="BOOL",
        help="run a version before it takes requests (default: true)",
    )  # fmt: skip
    _add_loading(group)


def _add_loading(group: argparse._ArgumentGroup) -> None:
    for name, what in (("--num_load_threads", "loaded"), ("--num_unload_threads", "freed")):
        group.add_argument(
            name, type=int, default=4, metavar="N",
            help=f"how many versions are {what} at the same time; 0 is one, as in TensorFlow "
            "Serving (default: 4)",
        )  # fmt: skip
    group.add_argument(
        "--max_num_load_retries", type=count, default=5, metavar="N",
        help="how often a version is tried again whose load failed for another reason than its "
        "file (default: 5)",
    )  # fmt: skip
    group.add_argument(
        "--load_retry_interval_micros", type=int, default=60_000_000, metavar="N",
        help="the time before it is tried again (default: a minute)",
    )  # fmt: skip


def _add_endpoints(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("endpoints")
    group.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)"
    )
    group.add_argument(
        "--port", type=port, default=8500, metavar="N",
        help="for gRPC (default: 8500); 0 selects a free port, -1 disables gRPC",
    )  # fmt: skip
    group.add_argument(
        "--rest_api_port", type=port, default=8501, metavar="N",
        help="for REST (default: 8501); 0 selects a free port, -1 disables REST",
    )  # fmt: skip
    group.add_argument(
        "--monitoring_config_file", metavar="FILE", help="the path of the Prometheus metrics"
    )
    group.add_argument(
        "--status_page", type=boolean, nargs="?", const=True, default=True, metavar="BOOL",
        help="a page about the models, at /status of the REST port (default: true)",
    )  # fmt: skip
    group.add_argument(
        "--rest_api_enable_cors_support", type=boolean, nargs="?", const=True, default=False,
        metavar="BOOL", help="pages of every origin may call the REST endpoint",
    )  # fmt: skip
    group.add_argument(
        "--cors_allowed_origin", action="append", default=[], metavar="ORIGIN",
        help="pages of this origin, such as https://example.com, may call the REST endpoint; can "
        "be repeated",
    )  # fmt: skip
    group.add_argument(
        "--access_log", metavar="FILE", help="a JSON line for each request; - for standard output"
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("batching and limits")
    group.add_argument(
        "--devices", type=positive, metavar="N",
        help="load each version on N devices, which share the requests (default: one device)",
    )  # fmt: skip
    group.add_argument(
        "--enable_batching", type=boolean, nargs="?", const=True, default=False, metavar="BOOL",
        help="join concurrent requests",
    )  # fmt: skip
    group.add_argument(
        "--batching_parameters_file", metavar="FILE", help="max_batch_size and so on, as text"
    )
    for name in ("--grpc_max_threads", "--rest_api_num_threads"):
        group.add_argument(
            name, type=positive, metavar="N",
            help="how many requests run at the same time; the larger of both flags (default: 4)",
        )  # fmt: skip
    group.add_argument(
        "--rest_api_timeout_in_ms", type=positive, default=30_000, metavar="N",
        help="the time limit of a request (default: 30000)",
    )  # fmt: skip
    group.add_argument(
        "--max_concurrent", type=positive, default=256, metavar="N",
        help="requests in progress; further ones are refused (default: 256)",
    )  # fmt: skip
    group.add_argument(
        "--max_body_bytes", type=positive, default=64 << 20, metavar="N",
        help="the largest request (default: 64 MiB)",
    )  # fmt: skip
    group.add_argument(
        "--max_request_bytes", type=positive, metavar="N",
        help="the bytes of all requests together; further ones are refused (default: 4 GiB, or "
        "twice --max_body_bytes)",
    )  # fmt: skip
    group.add_argument(
        "--drain_seconds", type=duration, default=30.0, metavar="N",
        help="how long SIGTERM waits for requests in progress (default: 30)",
    )  # fmt: skip


def _add_sessions(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sessions, for signatures that update variables")
    group.add_argument(
        "--max_sessions", type=natural, default=64, metavar="N",
        help="how many may be open; 0 disables them (default: 64)",
    )  # fmt: skip
    group.add_argument(
        "--max_session_bytes", type=natural, default=1 << 30, metavar="N",
        help="the bytes of the variables of all sessions (default: 1 GiB)",
    )  # fmt: skip
    group.add_argument(
        "--session_idle_seconds", type=duration, default=600.0, metavar="N",
        help="a session ends that was not used for this time (default: 600)",
    )  # fmt: skip
    group.add_argument(
        "--max_session_seconds", type=duration, default=3600.0, metavar="N",
        help="a session ends after this time (default: 3600)",
    )  # fmt: skip


def _add_security(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("security")
    group.add_argument(
        "--token_file", metavar="FILE", help="the accepted bearer tokens, one a line"
    )
    group.add_argument("--tls_certificate", metavar="FILE", help="PEM, for both endpoints")
    group.add_argument("--tls_key", metavar="FILE", help="the key of the certificate, PEM")
    group.add_argument(
        "--ssl_config_file", metavar="FILE", help="TLS for gRPC alone: an SSLConfig as text"
    )
    group.add_argument(
        "--tls_client_ca", metavar="FILE", help="accept only clients with a certificate of this CA"
    )


def port(text: str) -> int | None:
    """A port; None for -1."""
    if text == "-1":
        return None
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def natural(text: str) -> int:
    """An integer of at least 0."""
    return 0 if text == "0" else positive(text)


def duration(text: str) -> float:
    """Seconds, at least 0. A negative number is 0, as in TensorFlow Serving."""
    value = number(text)
    if value == -1 and not text.strip().startswith("-"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return max(value, 0.0)


def count(text: str) -> int:
    """An int of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return int(text)


def boolean(text: str) -> bool:
    """`true` or `false`, as in TensorFlow Serving's flags."""
    known = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is not true or false")
    return known[text.lower()]

"""The arguments of `graphc serve`: the flags of TensorFlow Serving under their names, and ours."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

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
    _add_files(group, ("--model_config_file", "several models: a model_config_list as text"))
    _add_numbers(
        group,
        ("--model_config_file_poll_wait_seconds", duration, 0.0,
         "read the file again after this time (default: never)"),
        ("--file_system_poll_wait_seconds", duration, 1.0,
         "the time between two searches for new versions; 0 searches once (default: 1)"),
    )  # fmt: skip
    _add_switch(group, "--enable_model_warmup", True,
                "run a version before it takes requests (default: true)")  # fmt: skip
    threads = (
        "how many versions are {} at the same time; 0 is one, as in TensorFlow Serving (default: 4)"
    )
    _add_numbers(
        group,
        ("--num_load_threads", int, 4, threads.format("loaded")),
        ("--num_unload_threads", int, 4, threads.format("freed")),
        ("--max_num_load_retries", count, 5,
         "how often a version is tried again whose load failed for another reason than its file "
         "(default: 5)"),
        ("--load_retry_interval_micros", int, 60_000_000,
         "the time before it is tried again (default: a minute)"),
    )  # fmt: skip


def _add_endpoints(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("endpoints")
    group.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)"
    )
    for name, protocol, default in (("--port", "gRPC", 8500), ("--rest_api_port", "REST", 8501)):
        text = f"for {protocol} (default: {default}); 0 selects a free port, -1 disables {protocol}"
        _add_numbers(group, (name, port, default, text))
    _add_files(group, ("--monitoring_config_file", "the path of the Prometheus metrics"))
    _add_switch(group, "--status_page", True,
                "a page about the models, at /status of the REST port (default: true)")  # fmt: skip
    _add_switch(group, "--rest_api_enable_cors_support", False,
                "pages of every origin may call the REST endpoint")  # fmt: skip
    group.add_argument(
        "--cors_allowed_origin", action="append", default=[], metavar="ORIGIN",
        help="pages of this origin, such as https://example.com, may call the REST endpoint; can "
        "be repeated",
    )  # fmt: skip
    _add_files(group, ("--access_log", "a JSON line for each request; - for standard output"))


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("batching and limits")
    _add_numbers(
        group,
        ("--devices", positive, None,
         "load each version on N devices, which share the requests (default: one device)"),
    )  # fmt: skip
    _add_switch(group, "--enable_batching", False, "join concurrent requests")
    _add_files(group, ("--batching_parameters_file", "max_batch_size and so on, as text"))
    together = "how many requests run at the same time; the larger of both flags (default: 4)"
    _add_numbers(
        group,
        ("--grpc_max_threads", positive, None, together),
        ("--rest_api_num_threads", positive, None, together),
        ("--rest_api_timeout_in_ms", positive, 30_000,
         "the time limit of a request (default: 30000)"),
        ("--max_concurrent", positive, 256,
         "requests in progress; further ones are refused (default: 256)"),
        ("--max_body_bytes", positive, 64 << 20, "the largest request (default: 64 MiB)"),
        ("--max_request_bytes", positive, None,
         "the bytes of all requests together; further ones are refused (default: 4 GiB, or twice "
         "--max_body_bytes)"),
        ("--drain_seconds", duration, 30.0,
         "how long SIGTERM waits for requests in progress (default: 30)"),
    )  # fmt: skip


def _add_sessions(parser: argparse.ArgumentParser) -> None:
    _add_numbers(
        parser.add_argument_group("sessions, for signatures that update variables"),
        ("--max_sessions", count, 64, "how many may be open; 0 disables them (default: 64)"),
        ("--max_session_bytes", count, 1 << 30,
         "the bytes of the variables of all sessions (default: 1 GiB)"),
        ("--session_idle_seconds", duration, 600.0,
         "a session ends that was not used for this time (default: 600)"),
        ("--max_session_seconds", duration, 3600.0,
         "a session ends after this time (default: 3600)"),
    )  # fmt: skip


def _add_security(parser: argparse.ArgumentParser) -> None:
    _add_files(
        parser.add_argument_group("security"),
        ("--token_file", "the accepted bearer tokens, one a line"),
        ("--tls_certificate", "PEM, for both endpoints"),
        ("--tls_key", "the key of the certificate, PEM"),
        ("--ssl_config_file", "TLS for gRPC alone: an SSLConfig as text"),
        ("--tls_client_ca", "accept only clients with a certificate of this CA"),
    )


def _add_files(group: argparse._ArgumentGroup, *flags: tuple[str, str]) -> None:
    """Flags with a FILE: the name and the help of each."""
    for name, text in flags:
        group.add_argument(name, metavar="FILE", help=text)


def _add_numbers(
    group: argparse._ArgumentGroup, *flags: tuple[str, Callable[[str], Any], Any, str]
) -> None:
    """Flags with a number N: the name, the reader, the default and the help of each."""
    for name, kind, default, text in flags:
        group.add_argument(name, type=kind, default=default, metavar="N", help=text)


def _add_switch(group: argparse._ArgumentGroup, name: str, default: bool, text: str) -> None:
    group.add_argument(
        name, type=boolean, nargs="?", const=True, default=default, metavar="BOOL", help=text
    )


def port(text: str) -> int | None:
    """A port; None for -1."""
    if text == "-1":
        return None
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


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

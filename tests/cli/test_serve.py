"""The flags of `graphc serve`; tests/serving/test_server.py runs the command."""

import gc as garbage
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphc.cli import main, serve
from graphc.cli.arguments import parse
from graphc.cli.serve import _Watch, config_of
from graphc.errors import AttributeValueError
from graphc.serving.config import BatchingConfig, Latest, ModelConfig, ServerConfig, SessionConfig
from graphc.serving.server import Server


def config(*arguments: Any) -> ServerConfig:
    return config_of(parse(["serve", *map(str, arguments)]))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "digits.gcx"
    path.touch()
    return path


def test_a_file_or_a_folder(model: Path) -> None:
    assert config(model).models == (ModelConfig("digits", str(model)),)
    assert config(model, "--model_name", "other").models[0].name == "other"
    assert config(model.parent).models == (ModelConfig(model.parent.name, str(model.parent)),)


def test_the_defaults_are_those_of_tensorflow_serving(tmp_path: Path) -> None:
    found = config("--model_base_path", tmp_path)
    assert found == ServerConfig((ModelConfig("default", str(tmp_path), Latest(1)),))
    assert (found.port, found.rest_port, found.poll_seconds) == (8500, 8501, 1.0)
    assert found.metrics_path == "/monitoring/prometheus/metrics"


def test_ports_and_limits(model: Path) -> None:
    found = config(
        model, "--port=-1", "--rest_api_port=9000", "--grpc_max_threads=2",
        "--rest_api_num_threads=6", "--rest_api_timeout_in_ms=1500", "--max_concurrent=7",
        "--max_body_bytes=1024", "--drain_seconds=2", "--file_system_poll_wait_seconds=-1",
        "--enable_model_warmup=false",
        "--num_load_threads=2", "--num_unload_threads=0", "--max_num_load_retries=0",
        "--load_retry_interval_micros=-1", "--host=0.0.0.0", "--access_log=-",
    )  # fmt: skip
    assert found == ServerConfig(
        (ModelConfig("digits", str(model)),), port=None, rest_port=9000, threads=6,
        request_seconds=1.5, max_concurrent=7, max_body_bytes=1024, drain_seconds=2.0,
        poll_seconds=0.0, warm_up=False, host="0.0.0.0", access_log="-",
        load_threads=2, unload_threads=1, load_retries=0, load_retry_seconds=0.0,
    )  # fmt: skip


def test_browsers(model: Path) -> None:
    assert config(model).cors_origins == () and config(model).status_page
    assert config(model, "--rest_api_enable_cors_support").cors_origins == ("*",)
    allowed = "--cors_allowed_origin=https://a.example", "--cors_allowed_origin=http://b:3000"
    found = config(model, *allowed, "--status_page=false")
    assert found.cors_origins == ("https://a.example", "http://b:3000") and not found.status_page
    with pytest.raises(AttributeValueError, match="allows every origin"):
        config(model, *allowed, "--rest_api_enable_cors_support")


def test_files(tmp_path: Path, model: Path) -> None:
    models = tmp_path / "models.config"
    models.write_text('model_config_list { config { name: "a" base_path: "/a" } }')
    assert config("--model_config_file", models).models == (ModelConfig("a", "/a"),)
    batching = tmp_path / "batching.config"
    batching.write_text("max_batch_size { value: 16 }")
    found = config(model, "--enable_batching", "--batching_parameters_file", batching)
    assert found.batching == BatchingConfig(max_batch_size=16)
    assert config(model, "--enable_batching=true").batching == BatchingConfig()
    assert config(model, "--enable_batching=false").batching is None
    monitoring = tmp_path / "monitoring.config"
    monitoring.write_text('prometheus_config { enable: true path: "/m" }')
    assert config(model, "--monitoring_config_file", monitoring).metrics_path == "/m"
    tokens = tmp_path / "tokens"
    tokens.write_text("one\n\n two \n")
    assert config(model, "--token_file", tokens).tokens == ("one", "two")


def test_limits_of_sessions(model: Path) -> None:
    assert config(model).sessions == SessionConfig()
    flags = ["--max_sessions", 0, "--max_session_bytes", 10]
    flags += ["--session_idle_seconds", 1.5, "--max_session_seconds", 20]
    assert config(model, *flags).sessions == SessionConfig(0, 10, 1.5, 20.0)
    for text in ("-1", "a", "1.5"):
        with pytest.raises(SystemExit):
            config(model, "--max_sessions", text)


def test_the_watched_file(tmp_path: Path) -> None:
    path = tmp_path / "models.config"
    path.write_text("model_config_list {}")
    watch = _Watch(str(path))
    assert watch() is None
    path.write_text('model_config_list { config { name: "a" base_path: "/a" } }')
    assert watch() == (ModelConfig("a", "/a"),)
    assert watch() is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either MODEL, --model_base_path or --model_config_file"),
        (["x", "--model_base_path", "y"], "give either MODEL"),
        (["nothing.gcx"], "there is no file or folder 'nothing.gcx'"),
        (["--model_config_file", "nothing"], "cannot read 'nothing': No such file"),
        (["--model_base_path", ".", "--batching_parameters_file", "x"], "needs --enable_batching"),
        (["--model_base_path", ".", "--tls_key", "x"], "must be given together"),
        (["--model_base_path", ".", "--port", "70000"], "'70000' is not a port"),
        (["--model_base_path", ".", "--enable_batching=maybe"], "'maybe' is not true or false"),
        (["--model_base_path", ".", "--model_nam", "x"], "did you mean '--model_name'?"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["serve", *arguments])
    except SystemExit as stop:
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2 and message in error and len(error.splitlines()) == 1


def test_what_is_there_at_the_start_is_left_out_of_collections(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full collection that visits all modules keeps requests waiting for 0.1 s."""
    found = []

    def run(server: Server, started: Callable[[], None]) -> None:
        started()
        found.append(garbage.get_freeze_count())

    monkeypatch.setenv("JAX_CPU_ENABLE_ASYNC_DISPATCH", "1")  # it stays as it is in this process
    monkeypatch.setattr(Server, "run", run)
    monkeypatch.setattr(serve, "_prepare_process", lambda: None)
    garbage.unfreeze()
    try:
        serve.run(parse(["serve", str(model), "--port=0", "--rest_api_port=0"]))
    finally:
        garbage.unfreeze()
        garbage.freeze()  # as conftest.py does
    assert found[0] > 10_000

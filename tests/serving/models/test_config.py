"""Configuration records reject values that cannot be served, with helpful errors."""

import pytest

from graphc.errors import AttributeValueError
from graphc.serving.config import (
    All,
    BatchingConfig,
    Latest,
    ModelConfig,
    ServerConfig,
    Specific,
)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Latest(0), "count must be an int of at least 1, got 0"),
        (lambda: Latest(True), "got True"),
        (lambda: Specific(()), "versions must not be empty"),
        (lambda: Specific((-1,)), "a version must be an int from 0 to"),
        (lambda: Specific((2**63,)), "a version must be an int from 0 to"),
        (lambda: Specific(("1",)), "got '1'"),
        (lambda: ModelConfig("", "/m"), "name must be a str that is not empty"),
        (lambda: ModelConfig("a/b", "/m"), "must not contain '/'"),
        (lambda: ModelConfig("a:b", "/m"), "must not contain ':'"),
        (lambda: ModelConfig("a\n", "/m"), r"must not contain '\\n'"),
        (lambda: ModelConfig("..", "/m"), "name must be"),
        (lambda: ModelConfig("a", ""), "base_path must be a path"),
        (lambda: ModelConfig("a", "/m\0"), "NUL"),
        (lambda: ModelConfig("a", "/m", "latest"), "policy must be"),
        (lambda: ModelConfig("a", "/m", labels={"": 1}), "a label must be"),
        (lambda: ModelConfig("a", "/m", labels={"x": -1}), "label 'x': a version must be"),
        (lambda: ModelConfig("a", "/m", traffic={1: 50}), "the sum 100, got 50"),
        (lambda: ModelConfig("a", "/m", traffic={"x": 100}), "label 'x', which it does not have"),
        (lambda: ModelConfig("a", "/m", traffic={1: -5, 2: 105}), "must be a percentage, got -5"),
        (lambda: ModelConfig("a", "/m", traffic={1: float("nan")}), "must be a percentage"),
        (lambda: BatchingConfig(max_batch_size=0), "max_batch_size must be"),
        (lambda: BatchingConfig(8, allowed_batch_sizes=(4, 2, 8)), "must increase and end with"),
        (lambda: BatchingConfig(8, allowed_batch_sizes=(2, 4)), r"max_batch_size \(8\)"),
        (lambda: ServerConfig((ModelConfig("a", "/m"),) * 2), "two models are named 'a'"),
        (lambda: ServerConfig((), port=70000), "port must be between 0 and 65535"),
        (lambda: ServerConfig((), load_threads=0), "load_threads must be an int of at least 1"),
        (lambda: BatchingConfig(buckets={"time": (4, 2)}), "buckets of 'time' must increase"),
        (lambda: BatchingConfig(buckets={"time": (0,)}), "buckets of 'time' must be an int of at"),
        (lambda: ServerConfig((), request_seconds=float("inf")), "request_seconds must be"),
        (lambda: ServerConfig((), tls_key="key.pem"), "must be given together"),
    ],
)
def test_what_cannot_be_served_is_refused(make, text: str) -> None:
    with pytest.raises(AttributeValueError, match=text):
        make()


def test_records_do_not_change_with_what_they_were_made_of() -> None:
    labels = {"stable": 1}
    config = ModelConfig("a", "/m", All(), labels, {"stable": 100})
    labels["stable"] = 2
    assert config.labels == {"stable": 1}
    with pytest.raises(TypeError):
        config.labels["stable"] = 3  # type: ignore[index]
    assert config == ModelConfig("a", "/m", All(), {"stable": 1}, {"stable": 100})

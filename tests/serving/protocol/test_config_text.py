"""Configuration files in the format of TensorFlow Serving."""

import pytest

from graphc.errors import AttributeValueError
from graphc.serving.config import All, BatchingConfig, Latest, ModelConfig, Specific
from graphc.serving.protocol.config_text import parse_batching, parse_models, parse_monitoring

MODELS = """
# a comment
model_config_list: {
  config: { name: "first", base_path: "/models/first", model_platform: "tensorflow" }
  config {
    name: 'second'  base_path: '/models/second'
    model_version_policy: { latest { num_versions: 2 } }
    version_labels { key: "stable" value: 3 }
    version_labels { key: "canary" value: 4 }
    traffic { key: "stable" value: 95 }
    traffic { key: "4" value: 5 }
  }
  config { name: "third" base_path: "/m/3" model_version_policy { all {} } }
  config {
    name: "fourth" base_path: "/m/4" model_version_policy { specific { versions: [7, 9] } }
  }
}
"""


def test_models() -> None:
    labels = {"stable": 3, "canary": 4}
    assert parse_models(MODELS) == (
        ModelConfig("first", "/models/first"),
        ModelConfig("second", "/models/second", Latest(2), labels, {"stable": 95.0, 4: 5.0}),
        ModelConfig("third", "/m/3", All()),
        ModelConfig("fourth", "/m/4", Specific((7, 9))),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model_config_list {", "models.config: not a ModelServerConfig"),
        ("model_config_list { config { nam: 'x' } }", 'no field named "nam"'),
        ("model_config_list { config { base_path: '/x' } }", "name must be a str"),
        ("model_config_list { config { name: 'x' } }", "base_path must be a path"),
        ("a" * 1000, "not a ModelServerConfig"),
        (
            "model_config_list { config { name: 'x' base_path: '/x' traffic "
            f"{{ key: '{'9' * 5000}' value: 100 }} }} }}",
            "which it does not have",
        ),
    ],
)
def test_files_that_are_wrong(text: str, message: str) -> None:
    with pytest.raises(AttributeValueError) as caught:
        parse_models(text, "models.config")
    assert message in str(caught.value)


def test_batching() -> None:
    text = """
    max_batch_size { value: 128 }  batch_timeout_micros { value: 0 }
    max_enqueued_batches { value: 1000 }  num_batch_threads { value: 8 }
    allowed_batch_sizes: 32  allowed_batch_sizes: 128  pad_variable_length_inputs: true
    thread_pool_name { value: "batches" }
    """
    assert parse_batching(text) == BatchingConfig(128, 0, 1000, 8, (32, 128), True)
    assert parse_batching("allowed_batch_sizes: [2, 4]").max_batch_size == 4
    assert parse_batching("") == BatchingConfig()
    with pytest.raises(AttributeValueError, match="max_batch_size must be an int of at least 1"):
        parse_batching("max_batch_size { value: 0 }")


def test_monitoring() -> None:
    assert parse_monitoring('prometheus_config { enable: true, path: "/metrics" }') == "/metrics"
    assert parse_monitoring("prometheus_config { enable: true }").startswith("/monitoring/")
    assert parse_monitoring("") is None
    with pytest.raises(AttributeValueError, match="must start with '/'"):
        parse_monitoring('prometheus_config { enable: true, path: "metrics" }', "m.config")

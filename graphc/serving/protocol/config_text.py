"""TensorFlow Serving's configuration files: protobuf text format -> records.

Every file may be one that works with TensorFlow Serving. `traffic { key: "stable" value: 95 }` in a
model's config is our addition, and `buckets { key: "time" value { sizes: [16, 64] } }` in the
parameters of batching.
"""

from __future__ import annotations

from typing import Any

from graphc.errors import AttributeValueError
from graphc.serving.config import (
    All,
    BatchingConfig,
    Latest,
    ModelConfig,
    Policy,
    Specific,
    TlsConfig,
)
from graphc.serving.protocol.messages import messages


def parse_models(text: str, where: str = "model_config_list") -> tuple[ModelConfig, ...]:
    """The models of a `model_config_list`.

    Args:
        where: the name of the file, for errors.

    Raises:
        AttributeValueError: the text does not parse, or a value is not valid.

    Examples:
        >>> from graphc.serving.protocol.config_text import parse_models
        >>> (model,) = parse_models('''model_config_list { config {
        ...     name: "digits" base_path: "/models/digits"
        ...     model_version_policy { specific { versions: 3 versions: 4 } }
        ...     version_labels { key: "stable" value: 3 }
        ... } }''')
        >>> model.policy, dict(model.labels)
        (Specific(versions=(3, 4)), {'stable': 3})
    """
    return models_of(_parsed("ModelServerConfig", text, where).model_config_list)


def models_of(config_list: Any) -> tuple[ModelConfig, ...]:
    """The models of a ModelConfigList message.

    Raises:
        AttributeValueError: a value is not valid.
    """
    return tuple(_model(config) for config in config_list.config)


def _model(config: Any) -> ModelConfig:
    labels = dict(config.version_labels)
    traffic = {
        int(key) if key not in labels and key.isdecimal() and len(key) < 20 else key: value
        for key, value in config.traffic.items()
    }
    policy = _policy(config.model_version_policy)
    return ModelConfig(config.name, config.base_path, policy, labels, traffic)


def _policy(message: Any) -> Policy:
    choice = message.WhichOneof("policy_choice")
    if choice == "all":
        return All()
    if choice == "specific":
        return Specific(tuple(message.specific.versions))
    return Latest(message.latest.num_versions or 1)


def parse_batching(text: str, where: str = "batching parameters") -> BatchingConfig:
    """The parameters of batching.

    Raises:
        AttributeValueError: the text does not parse, or a value is not valid.

    Examples:
        >>> from graphc.serving.protocol.config_text import parse_batching
        >>> text = "max_batch_size { value: 32 } buckets { key: 'time' value { sizes: [16, 64] } }"
        >>> parse_batching(text).max_batch_size, parse_batching(text).buckets["time"]
        (32, (16, 64))
    """
    message = _parsed("BatchingParameters", text, where)
    wrapped = ("max_batch_size", "batch_timeout_micros", "num_batch_threads",
               "max_enqueued_batches")  # fmt: skip
    given = {name: getattr(message, name).value for name in wrapped if message.HasField(name)}
    sizes = tuple(message.allowed_batch_sizes)
    if sizes and "max_batch_size" not in given:
        given["max_batch_size"] = sizes[-1]
    return BatchingConfig(
        **given,
        allowed_batch_sizes=sizes,
        pad_variable_length_inputs=message.pad_variable_length_inputs,
        buckets={name: tuple(row.sizes) for name, row in message.buckets.items()},
    )


def parse_monitoring(text: str, where: str = "monitoring config") -> str | None:
    """The path of the Prometheus metrics, or None if they are not enabled.

    Raises:
        AttributeValueError: the text does not parse, or the path does not start with "/".

    Examples:
        >>> from graphc.serving.protocol.config_text import parse_monitoring
        >>> parse_monitoring('prometheus_config { enable: true path: "/metrics" }')
        '/metrics'
    """
    config = _parsed("MonitoringConfig", text, where).prometheus_config
    if not config.enable:
        return None
    path: str = config.path or "/monitoring/prometheus/metrics"
    if not path.startswith("/"):
        raise AttributeValueError(f"{where}: path must start with '/', got {path!r}")
    return path


def parse_ssl(text: str, where: str = "SSL config") -> TlsConfig:
    """TLS of the gRPC endpoint. `custom_ca` is used if `client_verify` is set, as in TensorFlow
    Serving.

    Raises:
        AttributeValueError: the text does not parse, or a value is not in PEM form.

    Examples:
        >>> from graphc.serving.protocol.config_text import parse_ssl
        >>> begin = "-----BEGIN CERTIFICATE-----"  # and so on
        >>> parse_ssl(f'server_key: "{begin}" server_cert: "{begin}"').client_ca is None
        True
    """
    config = _parsed("SSLConfig", text, where)
    if config.client_verify and not config.custom_ca:
        raise AttributeValueError(
            f"{where}: client_verify needs custom_ca",
            hint="custom_ca is the authority, in PEM form, that signs the clients' certificates",
        )
    client_ca = config.custom_ca if config.client_verify else None
    try:
        return TlsConfig(config.server_key, config.server_cert, client_ca)
    except AttributeValueError as error:
        names = {"key": "server_key", "certificate": "server_cert", "client_ca": "custom_ca"}
        what = error.what.removeprefix("TlsConfig: ")
        name, _, rest = what.partition(" ")
        raise AttributeValueError(f"{where}: {names[name]} {rest}", hint=error.hint) from None


def _parsed(name: str, text: str, where: str) -> Any:
    from google.protobuf import text_format

    message = getattr(messages(), name)()
    try:
        return text_format.Parse(text, message)
    except (text_format.ParseError, RecursionError) as error:
        raise AttributeValueError(
            f"{where}: not a {name} in protobuf text format", details=[str(error)[:300]]
        ) from None

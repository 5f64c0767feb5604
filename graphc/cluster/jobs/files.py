"""Job files: YAML, JSON or TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from graphc.cluster.jobs.spec import JobSpec
from graphc.errors import AttributeValueError, GraphcError, MissingExtraError

_MOST: Final = 1 << 18  # bytes


def read_job(path: Path) -> JobSpec:
    """The job of a file. Its ending says its form: .yaml, .yml, .json or .toml.

    Raises:
        GraphcError: the file cannot be read.
        AttributeValueError: it has no such form, or its job is not valid.
        MissingExtraError: it is YAML, and PyYAML is not installed.
    """
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise AttributeValueError(
            f"{str(path)!r} is not a job file", hint=f"its ending must be {', '.join(_PARSERS)}"
        )
    try:
        with path.open("rb") as file:
            data = file.read(_MOST + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise GraphcError(f"cannot read {str(path)!r}: {reason}", hint="check the path") from None
    if len(data) > _MOST:
        raise AttributeValueError(f"{str(path)!r} has more than {_MOST} bytes")
    try:
        value = parse(text)
    except (ValueError, RecursionError) as error:  # JSON's and TOML's errors are ValueErrors
        raise AttributeValueError(f"{str(path)!r} cannot be parsed: {error}") from None
    return JobSpec.of(value, path.name)


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingExtraError(
            "a job file in YAML needs PyYAML",
            hint="pip install 'graphc[jobs]', or write the file as .json or .toml",
        ) from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
        """Refuses keys that are given twice, of which PyYAML takes the last."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            pairs = [(self.construct_object(key, deep=True), None) for key, _ in node.value]
            _unique(pairs)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, TypeError) as error:  # TypeError: a key that is a mapping
        raise ValueError(" ".join(str(error).split())) from None


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is given twice")
        found[key] = value
    return found


_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    ".yaml": _yaml,
    ".yml": _yaml,
    ".json": _json,
    ".toml": tomllib.loads,
}

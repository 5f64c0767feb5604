"""Parses passes written as text, `prune,fold-constants{limit=1024}`, for `graphc opt`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from importlib import import_module
from pkgutil import walk_packages
from textwrap import shorten
from typing import Any, Final, NamedTuple, NoReturn, get_type_hints

from graphc.cli.report import table
from graphc.errors import AttributeValueError, PassError, UnknownNameError, nearest
from graphc.passes.core.base import Pass
from graphc.passes.core.target import Target
from graphc.passes.pass_filter import pass_classes

_PACKAGES: Final = ("graphc.passes", "graphc.devices")
_ITEM: Final = re.compile(r"\s*(?P<name>[\w-]+)\s*(?:\{(?P<options>[^{}]*)\}\s*)?(?:,|\Z)")
_OPTION: Final = re.compile(
    r"\s*(?P<name>\w+)\s*=\s*(?P<value>\[[^\[\]]*\]|\"[^\"]*\"|[^\s,\[\]\"]+)\s*(?:,|\Z)"
)
_LONGEST: Final = 68  # characters of a pass description in the list
_WORDS: Final = {"true": True, "false": False, "none": None}


class Kind(NamedTuple):
    """Which values an option accepts."""

    words: str
    example: str
    accepts: tuple[type, ...]


# The field types that can be written as text.
_KINDS: Final[dict[Any, Kind]] = {
    bool: Kind("true or false", "true", (bool,)),
    int: Kind("an integer", "4", (int,)),
    int | None: Kind("an integer or none", "4", (int, type(None))),
    str: Kind("a word", "bf16", (str,)),
    tuple[str, ...]: Kind("a list of names", '["a", "b"]', (tuple,)),
}


def known_passes() -> dict[str, type[Pass]]:
    """All passes of graphc, by name."""
    for package in _PACKAGES:
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            import_module(module.name)
    found = [each for each in pass_classes() if each.__module__.startswith(_PACKAGES)]
    return {each.class_name(): each for each in sorted(found, key=lambda each: each.class_name())}


def parse_passes(text: str, target: Target) -> list[Pass]:
    """The passes that `text` names, in order.

    Args:
        target: the device description for passes that need one.

    Raises:
        AttributeValueError: the text does not parse, or an option has an invalid value.
        UnknownNameError: a pass does not exist, or a pass does not have an option.
    """
    known = known_passes()
    passes = []
    for item in _items(_ITEM, text, "--passes", "a,b{option=1,other=true}"):
        name = item["name"]
        if name not in known:
            names = nearest(name, known)
            raise UnknownNameError(f"--passes: no pass {name!r}", hint=f"{names} See --list")
        passes.append(_make(known[name], item["options"] or "", target))
    return passes


def _items(pattern: re.Pattern[str], text: str, where: str, example: str) -> Iterator[Any]:
    """The matches of `pattern`. Together they must cover `text`."""
    position = 0
    while position < len(text.rstrip()):
        match = pattern.match(text, position)
        if match is None:
            raise AttributeValueError(
                f"{where} does not parse at character {position + 1}",
                details=[text, " " * position + "^"],
                hint=f"write {example}",
            )
        yield match
        position = match.end()
    if text.rstrip().endswith(","):
        raise AttributeValueError(
            f"{where} ends with a comma", details=[text], hint=f"write {example}"
        )


def _make(kind: type[Pass], text: str, target: Target) -> Pass:
    name, known = kind.class_name(), options_of(kind)
    given: dict[str, Any] = {}
    where = f"--passes: {name}"
    for item in _items(_OPTION, text, f"{where}: the text of its options", "{option=1,other=true}"):
        option = item["name"]
        if option not in known:
            raise UnknownNameError(
                f"{where} has no option {option!r}",
                hint=nearest(option, known) or f"{name} has no options",
            )
        if option in given:
            raise AttributeValueError(f"{where}: the option {option!r} is given twice")
        given[option] = _value(f"{where}: {option}", known[option][1], item["value"])
    for option, (field, form) in known.items():
        if option not in given and _default(field) is MISSING:
            hint = f"write {name}{{{option}={form.example}}}"
            raise AttributeValueError(f"{where} needs the option {option!r}", hint=hint)
    hints = get_type_hints(kind)
    for field in fields(kind):
        written = field.name in known or hints[field.name] is Target
        if not written and _default(field) is MISSING:
            raise AttributeValueError(
                f"{where} needs the value {field.name!r}, which no text can give",
                hint="strategies of graphc run this pass: see --list for the others",
            )
    given |= {f.name: target for f in fields(kind) if hints[f.name] is Target}
    return kind(**given)


def options_of(kind: type[Pass]) -> dict[str, tuple[Field[Any], Kind]]:
    """The options of a pass that can be written as text."""
    hints = get_type_hints(kind)
    return {f.name: (f, _KINDS[hints[f.name]]) for f in fields(kind) if hints[f.name] in _KINDS}


def _value(where: str, kind: Kind, text: str) -> Any:
    if text in _WORDS:
        value: Any = _WORDS[text]
    else:
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            value = text
    value = tuple(value) if isinstance(value, list) else value
    wrong_items = isinstance(value, tuple) and any(type(each) is not str for each in value)
    if type(value) not in kind.accepts or wrong_items:
        _refuse(where, kind, text)
    return value


def _refuse(where: str, kind: Kind, text: str) -> NoReturn:
    option = where.rpartition(" ")[2]
    raise AttributeValueError(
        f"{where} must be {kind.words}, got {text}", hint=f"write {option}={kind.example}"
    )


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _written(value: Any) -> str:
    for word, meaning in _WORDS.items():
        if value is meaning:
            return word
    return str(list(value)) if isinstance(value, tuple) else str(value)


def list_passes() -> list[str]:
    """One line for each pass: its name, its options with their defaults, and what it does."""
    rows = []
    for name, kind in known_passes().items():
        options = [
            option if _default(field) is MISSING else f"{option}={_written(_default(field))}"
            for option, (field, _) in options_of(kind).items()
        ]
        rows.append((name, ", ".join(options), _first_sentence(kind.__doc__ or "")))
    return table(rows)


def _first_sentence(text: str) -> str:
    sentence = re.split(r"\.\s", text, maxsplit=1)[0]
    return shorten(sentence.rstrip("."), _LONGEST, placeholder=" ...")


def check_name(name: str, passes: Sequence[Pass]) -> None:
    """Raises `PassError` unless `name` is `all` or the name of one of `passes`."""
    names = list(dict.fromkeys(each.name for each in passes))
    if name != "all" and name not in names:
        raise PassError(
            f"--print-after: no pass {name!r} runs", hint=nearest(name, [*names, "all"])
        )

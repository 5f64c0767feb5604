"""CompileOptions: each option is checked, and the error says how to fix it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc.config import CompileOptions
from graphc.errors import AttributeValueError
from graphc.ir.program import Program
from graphc.passes.manager import PassManager


def test_the_defaults_hold() -> None:
    options = CompileOptions()
    assert (options.pipeline, options.verify, options.validate) == ("O2", True, False)
    assert (options.dump, options.donate, options.max_in_flight) == (None, True, 4)
    assert dict(options.xla_options) == {}


def test_options_are_values() -> None:
    flag = {"xla_cpu_enable_fast_math": False}
    a, b = CompileOptions(xla_options=flag), CompileOptions(xla_options=dict(flag))
    assert a == b
    assert hash(a) == hash(b)
    assert a != replace(a, max_in_flight=1)
    with pytest.raises(FrozenInstanceError):
        a.verify = False  # type: ignore[misc]
    flag["xla_cpu_enable_fast_math"] = True
    assert a == b
    with pytest.raises(TypeError):
        a.xla_options["x"] = 1  # type: ignore[index]


def test_a_path_will_do_for_a_folder(tmp_path: Path) -> None:
    assert CompileOptions(dump=tmp_path).dump == str(tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "text", "hint"),
    [
        ({"pipeline": "02"}, "pipeline must be one of", "did you mean 'O2'?"),
        ({"pipeline": None}, "pipeline must be one of", "pass a name"),
        ({"pipeline": np.ones(2)}, "pipeline must be one of", "pass a name"),
        ({"precision": np.ones(2)}, "precision must be 'bf16', 'f16' or None", "pass precision"),
        ({"sparse_updates": np.ones(2)}, "sparse_updates must be 'exact'", "pass "),
        ({"verify": 1}, "verify must be True or False, got 1", "verify=True"),
        ({"validate": "yes"}, "validate must be True or False, got 'yes'", "validate=True"),
        ({"donate": None}, "donate must be True or False, got None", "donate=True"),
        ({"dump": 3}, "dump must be the path of a folder, or None, got 3", "pass a path"),
        ({"dump": ""}, "dump must be the path of a folder", "pass a path"),
        ({"dump": __file__}, "dump must be a folder", "this path is a file"),
        ({"max_in_flight": 0}, "max_in_flight must be an int of at least 1, got 0", "pass 1"),
        ({"max_in_flight": True}, "max_in_flight must be an int", "pass 1"),
        ({"xla_options": ["xla"]}, "xla_options must map names to values", "pass a dict"),
        ({"xla_options": {"--xla_x": 1}}, "names of XLA's options", "without the leading dashes"),
        ({"xla_options": {"xla_x": [1]}}, r"xla_options\['xla_x'\] must be a plain value", "int"),
    ],
)
def test_a_value_it_cannot_have(option: dict[str, Any], text: str, hint: str) -> None:
    with pytest.raises(AttributeValueError, match=text) as info:
        CompileOptions(**option)
    assert hint in str(info.value)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """The error is raised when the first pass is dumped, because the folder is created then."""
    (tmp_path / "file").write_text("")
    program = Program("p", (), (), ())
    for dump in (str(tmp_path / "file" / "folder"), "\0"):
        with pytest.raises(AttributeValueError, match="dump cannot be written") as info:
            PassManager([], dump=dump).run(program)
        assert "pass another folder" in str(info.value)

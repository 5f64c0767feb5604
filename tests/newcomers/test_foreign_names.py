"""The table of other libraries' names says what exists."""

import inspect
import re

import pytest

import graphc as gc
from graphc.ir.foreign_names import ATTRIBUTES, FUNCTIONS, KEYWORDS


def resolve(name):
    """The object that `gc.nn.relu` names."""
    thing = gc
    for part in name.split(".")[1:]:
        thing = getattr(thing, part)
    return thing


@pytest.mark.parametrize("table", [ATTRIBUTES, FUNCTIONS], ids=["attributes", "functions"])
def test_what_is_advised_exists(table):
    for name, advice in table.items():
        for found in re.findall(r"\bgc(?:\.\w+)+", advice):
            assert resolve(found) is not None, name
        for keyword in re.findall(r"(gc[.\w]+)\((?:[^()]*, )?(\w+)=", advice):
            assert keyword[1] in inspect.signature(resolve(keyword[0])).parameters, (name, keyword)


def test_names_in_the_table_are_not_public():
    assert not [name for name in FUNCTIONS if name in dir(gc)]
    assert not [name for name in ATTRIBUTES if name in dir(gc.Tensor)]


def test_keywords_are_arguments_of_some_function():
    known = set()
    for module in (gc, gc.nn):
        for name in dir(module):
            thing = getattr(module, name)
            if callable(thing):
                known |= set(inspect.signature(thing).parameters)
    for name, others in KEYWORDS.items():
        assert known & set(others), name


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_foreign_name_is_answered(name):
    with pytest.raises(gc.errors.UnknownAttributeError) as caught:
        getattr(gc, name)
    assert f"write {FUNCTIONS[name]}" in str(caught.value)
    assert "test_foreign_names.py" in str(caught.value)

"""The index of names from other libraries agrees with the error messages."""

import re
import tomllib
from pathlib import Path

import pytest

import graphc as gc
from graphc import optim
from graphc.ir.foreign_names import ATTRIBUTES, FUNCTIONS

INDEX = Path(gc.__file__).parent / "ir/other_libraries.toml"
ENTRIES = {
    theirs: ours
    for table in tomllib.loads(INDEX.read_text()).values()
    for theirs, ours in table.items()
    if theirs != "title"
}

# What users import instead of a part of another library.
MODULES = {
    **{"tf": gc, "torch": gc, "np": gc, "": gc.nn, "tf.nn": gc.nn, "torch.nn": gc.nn},
    **{"torch.nn.functional": gc.nn, "tf.train": gc.train, "np.linalg": gc.linalg},
    **{"tf.linalg": gc.linalg, "torch.linalg": gc.linalg, "np.random": gc.random},
}
FUNCTION_NAMES = [name for name in ENTRIES if name.rpartition(".")[0] in MODULES]
METHOD_NAMES = [name for name in ENTRIES if re.match(r"(torch\.Tensor|np\.ndarray)\.", name)]


def plain(entry):
    """An entry without backquotes and links."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", entry).replace("`", "")


def hint(owner, name):
    """The error's hint for `owner.name`; None if the name exists."""
    try:
        getattr(owner, name)
    except gc.errors.UnknownAttributeError as error:
        assert "test_index_of_names.py" in str(error)
        return error.hint
    return None


@pytest.fixture(scope="module")
def x():
    with gc.Graph():
        yield gc.ones((2, 3))


@pytest.fixture(scope="module")
def v():
    with gc.Graph():
        yield gc.variable(1.0)


def test_there_are_many():
    assert len(FUNCTION_NAMES) > 800 and len(METHOD_NAMES) > 60


@pytest.mark.parametrize("theirs", FUNCTION_NAMES)
def test_a_name_exists_or_its_error_says_what_the_index_says(theirs):
    area, _, name = theirs.rpartition(".")
    said = hint(MODULES[area], name)
    if said is not None and name not in FUNCTIONS:
        texts = [plain(ENTRIES[other]) for other in ENTRIES if other.rpartition(".")[2] == name]
        assert said.removeprefix("write ") in texts


@pytest.mark.parametrize("theirs", METHOD_NAMES)
def test_a_method_exists_or_its_error_says_what_the_index_says(theirs, x):
    name = theirs.rpartition(".")[2]
    said = hint(x, name)
    if said is not None and name not in ATTRIBUTES:
        texts = [plain(ENTRIES[other]) for other in METHOD_NAMES if other.endswith(f".{name}")]
        assert said.removeprefix("write ") in texts


def test_a_part_of_a_library_prefers_its_own_entry():
    assert hint(gc.nn, "ReLU").startswith("write gc.nn.relu")
    assert hint(gc.nn, "unfold") == "write gc.nn.patches"
    assert hint(gc.random, "rand") == "write gc.random.uniform(shape)"
    assert hint(gc.linalg, "solve_triangular") == "write gc.linalg.triangular_solve"


def test_functions_stand_in_for_missing_methods(x):
    assert hint(x, "sin") == "write gc.sin(x)"
    assert hint(x, "cholesky") == "write gc.linalg.cholesky(x)"
    assert hint(x, "atan2") == "write gc.atan2"  # its first argument is called y
    assert hint(x, "fmod") == "write gc.fmod(x, y)"
    assert hint(x, "log_softmax") == "write gc.log_softmax(x)"


def test_methods_that_change_a_tensor(x):
    assert hint(x, "sin_") == "write gc.sin(x): a tensor never changes"
    assert hint(x, "clip_") == "write x.clip(...): a tensor never changes"
    assert hint(x, "mul_") == "write x * y: a tensor never changes"
    assert hint(x, "copy_") == "write v.assign(value) of a variable: a tensor never changes"


def test_names_of_another_module():
    assert hint(gc, "svd") == "write gc.linalg.svd"
    assert hint(gc, "dropout") == "write gc.nn.dropout"
    assert hint(gc, "HeNormal") == "write gc.nn.initializers.HeNormal"
    assert hint(gc.nn, "matmul") == "write gc.matmul"
    assert hint(gc.nn, "einsun") == "did you mean gc.einsum?"


def test_slips_and_names_that_resemble_nothing(x):
    assert hint(gc, "plcaeholder") == "did you mean 'placeholder'?"
    assert hint(gc.fft, "ftt") == "did you mean 'fft'?"
    assert hint(gc.train, "fti") == "did you mean 'fit'?"
    assert hint(x, "shpae") == "did you mean 'shape'?"
    assert "dir(gc.nn) has the names" in hint(gc.nn, "quagmire")
    assert "dir(gc.Tensor) has the attributes" in hint(x, "quagmire")


def test_variables_have_entries_of_their_own(v):
    assert hint(v, "read_value") == "write v.read()"
    assert hint(v, "load") == "write session.set(v, value)"


def test_the_package_of_optimizers(monkeypatch):
    monkeypatch.delattr(gc, "optim")  # as before a graph is trained
    assert hint(gc, "optim").startswith("write gc.minimize(loss, optax.adam(rate))")
    assert hint(optim, "Adam") == "write optax.adam(rate)"

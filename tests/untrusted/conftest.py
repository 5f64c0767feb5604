"""These tests use the model of the tests of artifacts."""

from tests.artifacts.conftest import plain as plain

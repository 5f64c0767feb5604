"""These tests share the model of the tests of artifacts."""

from tests.artifacts.conftest import plain as plain

"""The examples make many steps, so their programs are compiled as for users."""

from collections.abc import Iterator

import pytest

from tests.compiling import OPTION, optimised


@pytest.fixture(scope="module", autouse=True)
def optimised_programs() -> Iterator[None]:
    """Enables optimizations in this process and in those that the tests start."""
    with optimised(), pytest.MonkeyPatch.context() as patch:
        patch.setenv(OPTION.upper(), "0")
        yield
